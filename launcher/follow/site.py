"""The interface of a site, where a job's nodes are: this machine, or machines of an inventory.

Everything else about a job is the same on both.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from launcher.follow.outcome import Outcome
from launcher.follow.runtime import Runtime
from launcher.job.checkpoint import Checkpoint
from launcher.job.folder import Earlier, JobFolder
from launcher.job.plan import Plan
from launcher.job.request import Request


class Site(Protocol):
    """What `launcher.commands.train` needs from the place."""

    @property
    def versions(self) -> str:
        """The versions of Python, torch and so on, for the banner; known once a job is planned."""

    def newest(self, job: Earlier, /) -> Checkpoint:
        """Return the newest valid checkpoint of an earlier job.

        Raises:
            RingmasterError: it can't be told which one that is, or there is none.
        """

    def plan(self, folder: JobFolder, request: Request, /, *, resumes: bool) -> Plan:
        """Look at the nodes and plan the job; what `equip` can bring is taken for granted.

        Raises:
            RingmasterError: the job can't work on these nodes.
        """

    def equip(self, plan: Plan, /) -> bool:
        """Install what the plan takes for granted; return whether the job is to be planned again with it.

        Raises:
            RingmasterError: it can't be installed; nothing was started.
        """

    def prepare(self, plan: Plan) -> None:
        """Bring what is large to the nodes, once it is certain that the job will start."""

    def place(self, plan: Plan, folder: JobFolder, request: Request, /) -> None:
        """Bring the job's own things to its nodes."""

    def job(self, plan: Plan, folder: JobFolder, /) -> "SiteJob":
        """Return the job as it runs and ends."""


class SiteJob(Protocol):
    """One job at its place."""

    clock_s: float
    """How many seconds the clock of the machine that writes the metrics is ahead of ours."""

    @property
    def runtime(self) -> Runtime:
        """How its nodes are started."""

    def mark_stopped(self) -> None:
        """Let others who follow the job know that somebody stops it: its ranks are about to end badly."""

    def collect(self, outcome: Outcome) -> Outcome:
        """Fetch what the job has written; return the outcome as its nodes know it."""

    def finish(self, outcome: Outcome, summary: Mapping[str, Any]) -> None:
        """Once the job has ended, record its end on the nodes, and leave only what is kept on purpose there.

        Args:
            summary: empty if the job never ran.
        """
