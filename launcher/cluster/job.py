"""A job on a cluster while it runs and when it ends: its runtime, and the download of its results."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster import job_folders
from launcher.cluster.engine.runtime import DockerRuntime
from launcher.cluster.transfer.download import FolderDownload, fetch_file, part_of
from launcher.cluster.transfer.policy import Kind, Limits, Offer, Policy
from launcher.cluster.working_folders import WorkingFolders
from launcher.follow.outcome import Outcome, seen_end
from launcher.inventory.hosts import job_dir
from launcher.job.folder import OURS, OURS_OF_A_NODE, JobFolder
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.refusals import one_line

_METRICS_S = 0.5
_CHECKPOINTS_S = 10.0


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
        work_limit: int | None = None,
    ) -> None:
        """Args:
        remotes: by the nodes' names in the plan, without those out of reach.
        pins: the inventory's known_hosts.
        say: prints a line for the user.
        attach: follow the containers that exist, instead of creating them.
        clock_s: seconds that the head's clock is ahead of ours.
        token: marks the folders that were created for this job, so that they can be removed if it never runs.
        work_limit: how many bytes of the working folders come home; None: as the job was planned.
        """
        self.runtime = DockerRuntime(plan, remotes, pins, attach=attach, before_start=self._note_start)
        self.clock_s = clock_s
        self._token = token
        self._plan = plan
        self._folder = folder
        self._say = say
        # Our own inventory says where it is on each node: a plan that came from a node may say anything.
        self._folders = {name: PurePosixPath(job_dir(remote.host)) / plan.name for name, remote in remotes.items()}
        self._fetched: set[str] = set()
        self.unrecorded: set[str] = set()
        """The nodes on which the job's end could not be recorded, once it is finished."""
        self._stops = False
        """Whether we stop it ourselves, and so see better than a mark tells whether that, or a failure, ended it."""
        self._policy = Policy(limits=Limits.of(plan.work_limit if work_limit is None else work_limit))
        self._head = self._download(plan.nodes[0])
        self._ended = threading.Event()
        self._work = WorkingFolders(plan, folder, self._policy, self._folders, self.runtime.remotes, say)
        self._fetcher = threading.Thread(target=self._fetch_on, daemon=True)
        self._fetcher.start()

    def collect(self, outcome: Outcome) -> Outcome:
        """Fetch the rest of what the job has written from every node that can be reached.

        Returns: the outcome as the nodes know it. Somebody else may have stopped the job, or seen an end that we
        didn't.
        """
        if outcome.state == "stopped":  # before the download, which may be broken off: nobody else knows it yet
            self.mark_stopped()
        self._end_fetching(let_go=outcome.state == "detached" or not outcome.started)
        if outcome.state == "detached" or not outcome.started:
            return outcome
        stopped = False
        for node in self._plan.nodes:
            try:
                stopped = self._is_marked(node.name, "stopped") or stopped
                self._fetch_all(node)
                self._work.fetch(node.name)
                self._fetched.add(node.name)
            except (KeyError, *Trouble) as error:
                why = "it is out of reach" if isinstance(error, KeyError) else error
                self._say(f"{node.name}: not all results could be fetched ({why}); make logs NAME={self._plan.name}")
        self._work.tell()
        recorded = self._recorded() if outcome.state == "unknown" else None
        stopped = stopped and not self._stops and outcome.state != "stopped"
        if recorded is None and stopped and not self._lost_steps(outcome):
            return Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
        return recorded or outcome

    def _lost_steps(self, outcome: Outcome) -> bool:
        """Whether the trainer could not save its last steps when it was stopped: that is no clean stop."""
        failure = outcome.failure
        of_a_rank = failure is not None and failure.rank is not None
        return of_a_rank and self._plan.bundled and outcome.exit_code == ExitCode.CLUSTER

    def _recorded(self) -> Outcome | None:
        """The end that another launcher saw, which has followed the job and removed its containers."""
        return next(filter(None, map(seen_end, map(self._summary_on, self._folders))), None)

    def _summary_on(self, name: str) -> Any:
        with suppress(KeyError, ValueError, *Trouble):
            path = str(self._folders[name] / "summary.json")
            with self.runtime.remotes()[name].sftp().open(path) as file:
                return json.loads(file.read())
        return None

    def finish(self, outcome: Outcome, summary: Mapping[str, Any]) -> None:
        """Keep the job's results, log and summary on its nodes; remove its code, secrets and home.

        Nothing is kept of a job that never ran.
        """
        if not outcome.started:
            self._discard()
            return
        record = json.dumps(summary, indent=2).encode() + b"\n"
        reached = [node.name for node in self._plan.nodes if node.name in self._fetched]
        closed = [name for name in reached if self._close(name, record)]
        self.unrecorded = {node.name for node in self._plan.nodes} - set(closed)
        # Last of all, and only where that is on the disk: until then, the containers tell how the job ended.
        if len(reached) == len(self._plan.nodes):
            for name in self.runtime.remove(closed):
                self._say(f"{name}: the job's container could not be removed; make stop NAME={self._plan.name} does it")

    def _discard(self) -> None:
        for node in self._plan.nodes:
            try:
                self._ask(node.name, "discard", b"", self._token)
            except (KeyError, *Trouble) as error:
                self._say(f"{node.name}: the job's folder could not be tidied ({error})")

    def _close(self, name: str, record: bytes) -> bool:
        """Record on a node how the job ended, and tidy its folder there; return whether that is done."""
        log = self._folder.logs / f"{name}.log"
        try:
            files = {"log": log} if log.is_file() else {}
            self._ask(name, "close", job_folders.packed({"summary.json": record}, files))
            self._work.keep(name)
        except (KeyError, *Trouble) as error:
            why = str(error).removeprefix(f"{name}: ")
            self._say(
                f"{name}: how the job ended could not be recorded there ({why}), so what is left of it stays; "
                f"make logs NAME={self._plan.name} tries again"
            )
            return False
        return True

    def fetch_closed(self) -> None:
        """Fetch the log and the summary that the launcher that closed the job left on its nodes; name what stays."""
        for node in self._plan.nodes:
            try:
                sftp = self.runtime.remotes()[node.name].sftp()
                for name, target in (
                    ("log", self._folder.logs / f"{node.name}.log"),
                    ("summary.json", self._folder.summary),
                ):
                    if not target.exists():
                        with part_of(target) as part:
                            fetch_file(sftp, self._folders[node.name] / name, part)
                            part.replace(target)
            except (KeyError, *Trouble):
                continue  # `collect` has reported it
        for name in self._fetched:
            with suppress(KeyError, *Trouble):
                self._work.keep(name)

    def mark_stopped(self) -> None:
        """Let other launchers that follow the job know that somebody stops it: its ranks are about to end badly."""
        self._stops = True
        for node in self._plan.nodes:
            with suppress(KeyError, *Trouble):
                self._ask(node.name, "mark", b"", "stopped")

    def _note_start(self, remote: Remote) -> None:
        """Leave a sign of the start, so that a job whose containers are removed does not look as if it never ran."""
        path = PurePosixPath(job_dir(remote.host)) / self._plan.name / "started"
        try:
            remote.sftp().open(str(path), "w").close()
        except Trouble as error:
            raise RingmasterError(f"{remote.name}: {path}: can't be written ({error})") from error

    def _ask(self, name: str, verb: str, files: Any = b"", *words: str) -> dict[str, Any]:
        folder = self._folders[name]
        remote = self.runtime.remotes()[name]
        return job_folders.ask(remote, verb, str(folder.parent), folder.name, *words, files=files)

    def _download(self, node: NodePlan) -> FolderDownload:
        name, head = node.name, node.node_rank == 0
        source = self._folders.get(name, PurePosixPath("/nowhere")) / "run"  # out of reach: `remote` raises
        own = self._folder.of_node(name)

        def stays(path: str, size: int) -> str:
            kind = Kind.CHECKPOINT if path.startswith("checkpoints/") else Kind.RUN
            return self._policy.stays(Offer(kind=kind, node=name, path=path, size=size))

        return FolderDownload(
            remote=lambda: self.runtime.remotes()[name],
            source=source,
            target=self._folder.path if head else own,
            aside=own if head else own / "run",
            taken=OURS if head else OURS_OF_A_NODE,
            stays=stays,
            marks=lambda below: self._ask(name, "marks", b"", below)["marks"],
            say=lambda text: self._say(f"{name}: {text}") if self._ended.is_set() else None,
        )

    def _fetch_on(self) -> None:
        """While the job runs: fetch its metrics at once, its checkpoints now and then."""
        fetched_at, told = time.monotonic(), False
        while not self._ended.wait(_METRICS_S):
            try:
                self._head.fetch_appended()
                if time.monotonic() - fetched_at > _CHECKPOINTS_S:
                    self._head.fetch("checkpoints", finished=False)
                    fetched_at = time.monotonic()
            except (KeyError, *Trouble):
                continue  # the runtime reports it; what was missed is fetched at the end
            except Exception as error:  # in this thread nobody else would hear of it
                if not told:
                    told = True
                    self._say(f"results can't be fetched while the job runs ({one_line(error)}); trying again")

    def _end_fetching(self, *, let_go: bool) -> None:
        """Wait for what is under way, however long it takes: it is wanted. A line that stands still ends it.

        Args:
            let_go: nobody wants it any more, so don't wait.
        """
        self._ended.set()
        if let_go:
            self._head.give_up()
        try:
            self._work.end(let_go=let_go)
            self._fetcher.join()
        except BaseException:  # Ctrl-C
            self._head.give_up()
            raise

    def _fetch_all(self, node: NodePlan) -> None:
        download = self._download(node) if node.node_rank > 0 else self._head
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
