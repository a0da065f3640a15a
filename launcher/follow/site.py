"""Where a job's nodes are: this machine, or the machines of an inventory. All else of a job is the same for both."""

from typing import Protocol

from launcher.follow.outcome import Outcome
from launcher.follow.runtime import Runtime
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan
from launcher.job.request import Request


class Site(Protocol):
    """What `launcher.commands.train` asks of the place."""

    @property
    def versions(self) -> str:
        """Of Python, torch and what else the ranks will run with, for the banner; known once a job is planned."""

    def plan(self, folder: JobFolder, asked: Request, *, resumes: bool) -> Plan:
        """Look at the nodes and plan the job; refuse what can't work."""

    def prepare(self, plan: Plan) -> None:
        """What takes long or installs something, once it is certain that the job shall start."""

    def place(self, plan: Plan, folder: JobFolder, asked: Request) -> None:
        """Bring the job's own things to its nodes."""

    def job(self, plan: Plan, folder: JobFolder, /) -> "SiteJob":
        """The job as it runs and ends."""


class SiteJob(Protocol):
    """One job at its place."""

    clock_s: float
    """Seconds that the clock of whoever writes the metrics is ahead of ours."""

    @property
    def runtime(self) -> Runtime:
        """How its nodes are started."""

    def collect(self, outcome: Outcome) -> Outcome:
        """Fetch what the job has written; return the outcome as the nodes know it."""

    def finish(self, outcome: Outcome) -> None:
        """The job has ended and its summary is written: leave on the nodes only what is kept on purpose."""
