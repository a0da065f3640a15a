"""A job on a cluster while it runs and when it ends: its runtime, and the download of its results."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from launcher.base.errors import ExitCode
from launcher.cluster import job_folders
from launcher.cluster.engine.runtime import DockerRuntime
from launcher.cluster.transfer.download import FolderDownload
from launcher.follow.failure import Failure
from launcher.follow.outcome import Outcome, outcome_of
from launcher.inventory.hosts import job_dir
from launcher.job import container
from launcher.job.folder import OURS, JobFolder
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.connection import Remote, Trouble

_METRICS_S = 0.5
_CHECKPOINTS_S = 10.0
_LAST_S = 60.0
"""How long a download that is under way at the job's end may take to finish."""


def planned_job_dir(node: NodePlan) -> str:
    """Return the folder of all jobs on a node, as planned."""
    return str(Path(container.node_folder(node.container, container.RUN)).parent.parent)


def _removed(node: str) -> Outcome:
    reason = "its containers are gone, so nobody knows how it ended"
    failure = Failure(node=node, rank=None, exit_code=None, signal=None, reason=reason, log_tail=(), hint=None)
    return Outcome(state="failed", exit_code=ExitCode.CLUSTER, failure=failure)


class ClusterJob:
    """One job's nodes, from start to end; the job may have been started by another launcher."""

    def __init__(
        self,
        plan: Plan,
        folder: JobFolder,
        remotes: Mapping[str, Remote],
        pins: Path,
        say: Callable[[str], None],
        *,
        attach: bool = False,
        clock_s: float = 0.0,
        token: str = "",
    ) -> None:
        """Args:
        remotes: by the nodes' names in the plan, without those out of reach.
        pins: the inventory's known_hosts.
        say: prints a line for the user.
        attach: follow the containers that exist, instead of creating them.
        clock_s: seconds that the head's clock is ahead of ours.
        token: marks the folders that were created for this job, so that they can be removed if it never runs.
        """
        self.runtime = DockerRuntime(plan, remotes, pins, attach=attach)
        self.clock_s = clock_s
        self._token = token
        self._plan = plan
        self._folder = folder
        self._say = say
        # Our own inventory says where it is on each node: a plan that came from a node may say anything.
        self._folders = {name: PurePosixPath(job_dir(remote.host)) / plan.name for name, remote in remotes.items()}
        self._fetched: set[str] = set()
        head = plan.nodes[0].name
        self._head = self._download(head, folder.path, aside=folder.path / "nodes" / head)
        self._ended = threading.Event()
        self._fetcher = threading.Thread(target=self._fetch_on, daemon=True)
        self._fetcher.start()

    def collect(self, outcome: Outcome) -> Outcome:
        """Fetch the rest of what the job has written from every node that can be reached.

        Returns: the outcome as the nodes know it; somebody else may have stopped the job.
        """
        self._ended.set()
        self._fetcher.join(_LAST_S)
        if outcome.state == "detached" or not outcome.started:
            return outcome
        stopped = False
        for node in self._plan.nodes:
            try:
                stopped = self._is_marked(node.name, "stopped") or stopped
                self._fetch_all(node)
                self._fetched.add(node.name)
            except (KeyError, *Trouble) as error:
                why = "it is out of reach" if isinstance(error, KeyError) else error
                self._say(f"{node.name}: not all results could be fetched ({why}); make logs NAME={self._plan.name}")
        if stopped:
            return Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
        if self.runtime.gone:
            return self._recorded() or _removed(self._plan.nodes[0].name)
        return outcome

    def _recorded(self) -> Outcome | None:
        """How the job ended, as recorded by another launcher that followed it and removed its containers."""
        for node in self._plan.nodes:
            with suppress(KeyError, TypeError, ValueError, *Trouble):
                path = str(self._folders[node.name] / "summary.json")
                content = self.runtime.remotes()[node.name].sftp().open(path).read()
                return outcome_of(json.loads(content))
        return None

    def finish(self, outcome: Outcome) -> None:
        """Keep the job's results, log and summary on its nodes; remove its code, secrets and home.

        Nothing is kept of a job that never ran.
        """
        for node in self._plan.nodes:
            try:
                if not outcome.started:
                    self._ask(node.name, "discard", b"", self._token)
                elif node.name in self._fetched:
                    files = {"summary.json": self._folder.summary, "log": self._folder.logs / f"{node.name}.log"}
                    written = {name: path for name, path in files.items() if path.is_file()}
                    self._ask(node.name, "close", job_folders.packed({}, written))
            except (KeyError, *Trouble) as error:
                self._say(f"{node.name}: the job's folder could not be tidied ({error})")
        # Last of all: until then, other launchers learn from the containers how the job ended.
        if outcome.started and len(self._fetched) == len(self._plan.nodes):
            for name in self.runtime.remove():
                self._say(f"{name}: the job's container could not be removed; make stop NAME={self._plan.name} does it")

    def fetch_closed(self) -> None:
        """Fetch the log and the summary that the launcher that closed the job left on its nodes."""
        for node in self._plan.nodes:
            try:
                sftp = self.runtime.remotes()[node.name].sftp()
                for name, target in (
                    ("log", self._folder.logs / f"{node.name}.log"),
                    ("summary.json", self._folder.summary),
                ):
                    if not target.exists():
                        part = target.with_name(
                            f".{target.name}.part"
                        )  # `get` creates it before it knows whether the source exists
                        try:
                            sftp.get(str(self._folders[node.name] / name), str(part))
                            part.replace(target)
                        finally:
                            part.unlink(missing_ok=True)
            except (KeyError, *Trouble):
                continue  # `collect` has reported it

    def mark(self, what: str) -> None:
        """Leave the mark `what` for other launchers that follow the job."""
        for node in self._plan.nodes:
            try:
                self._ask(node.name, "mark", b"", what)
            except (KeyError, *Trouble):
                continue

    def _ask(self, name: str, verb: str, files: Any = b"", *words: str) -> dict[str, Any]:
        folder = self._folders[name]
        remote = self.runtime.remotes()[name]
        return job_folders.ask(remote, verb, str(folder.parent), folder.name, *words, files=files)

    def _download(self, name: str, target: Path, aside: Path | None = None) -> FolderDownload:
        source = self._folders.get(name, PurePosixPath("/nowhere")) / "run"  # out of reach: `remote` raises
        return FolderDownload(
            remote=lambda: self.runtime.remotes()[name], source=source, target=target, aside=aside, taken=OURS
        )

    def _fetch_on(self) -> None:
        """While the job runs: fetch its metrics at once, its checkpoints now and then."""
        fetched_at = time.monotonic()
        while not self._ended.wait(_METRICS_S):
            try:
                self._head.fetch_appended()
                if time.monotonic() - fetched_at > _CHECKPOINTS_S:
                    self._head.fetch("checkpoints", finished=False)
                    fetched_at = time.monotonic()
            except (KeyError, *Trouble):
                continue  # the runtime reports it; what was missed is fetched at the end

    def _fetch_all(self, node: NodePlan) -> None:
        download = self._head
        if node.node_rank > 0:
            download = self._download(node.name, self._folder.path / "nodes" / node.name)
        download.fetch(finished=True)
        if download.left_behind:
            where = self._folders[node.name] / "run"
            self._say(f"{node.name}: stays there, in {where}: {', '.join(download.left_behind[:5])}")

    def _is_marked(self, name: str, what: str) -> bool:
        try:
            self.runtime.remotes()[name].sftp().stat(str(self._folders[name] / what))
        except FileNotFoundError:
            return False
        return True
