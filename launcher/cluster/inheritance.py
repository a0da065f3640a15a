"""What a job on a cluster continues from: the earlier one's checkpoint, and what its program wrote beside its code."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.cluster import resume
from launcher.cluster.job_folders import planned_job_dir
from launcher.cluster.resume import Reach
from launcher.cluster.transfer.checkpoint import Home, Place, bring_checkpoint, tree_of
from launcher.cluster.transfer.file_tree import FileTree, describe, hashed_entry, in_order
from launcher.cluster.transfer.upload import Call, Holder, Say, spread
from launcher.cluster.transfer.work import PROGRAM
from launcher.cluster.working_folders import replaced_here
from launcher.inventory.hosts import Host, job_dir
from launcher.job.checkpoint import Checkpoint, NoCheckpointError
from launcher.job.folder import Earlier, JobFolder
from launcher.job.plan import Plan
from launcher.on_node.tree_store import PLAIN, Entry, manifest_of, parse
from launcher.on_node.work_folder import ARRIVED
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all

_NAMED = 5
WHAT = "the working folder's files"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the program had written into its working folder on one node."""

    files: Checkpoint
    was: Mapping[str, str] = field(default_factory=dict)
    """By path of a file that took the place of the code's own: the hash of that."""
    host: Host | None = None
    """The node, if the files are there."""
    address: str = ""
    """The node's, for the other nodes."""


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """What a job continues from."""

    checkpoint: Checkpoint
    """Without entries: CHECKPOINT_DIR had nothing, and the working folder's files are all there is."""
    host: Host | None
    """The first node of the earlier job, if it was asked."""
    address: str
    """Its address for the other nodes."""
    work: tuple[Work, ...] = ()
    """By the rank of the earlier job's nodes; empty: it was the bundled trainer, which writes nothing there."""

    def beside(self, code: FileTree | None) -> "Inherited":
        """Return what is put back beside this code; where that has changed since, the code wins."""
        if code is None:
            return replace(self, work=())
        notes, work = [], []
        for each in self.work:
            kept, overruled = put_back(each.files.entries, each.was, code.entries)
            work.append(replace(each, files=replace(each.files, entries=kept)))
            if overruled:
                more = f" and {len(overruled) - _NAMED} more" if len(overruled) > _NAMED else ""
                notes.append(
                    f"{', '.join(overruled[:_NAMED])}{more}: your code has changed there, so what job "
                    f"{self.checkpoint.job} wrote is not put back"
                )
        trees = [tree_of(each.files, Path(each.files.folder)) for each in work if each.files.entries]
        if trees:
            notes.append(f"put back into the working folder: {', '.join(map(describe, trees))}")
        checkpoint = replace(self.checkpoint, notes=tuple(dict.fromkeys(notes)))
        return replace(self, work=tuple(work), checkpoint=checkpoint)

    def of(self, rank: int) -> Work:
        """Return what a new job's node gets: what the node of that rank had, or the first one's where none was."""
        return self.work[rank if rank < len(self.work) else 0]


def put_back(
    entries: Sequence[Entry], was: Mapping[str, str], code: Sequence[Entry]
) -> tuple[tuple[Entry, ...], list[str]]:
    """Return which of an earlier job's files belong beside the code as it is now, and the paths of those that don't.

    The code wins where it has something else at the path, or in its way, than that job was given.
    """
    there = {entry.path: entry.sha256 or entry.link for entry in code}
    folders = {
        "/".join(words[:count]) for words in (path.split("/") for path in there) for count in range(1, len(words))
    }
    kept, overruled = [], []
    for entry in entries:
        words = entry.path.split("/")
        in_the_way = entry.path in folders or any("/".join(words[:count]) in there for count in range(1, len(words)))
        now = there.get(entry.path)
        if now == (entry.sha256 or entry.link):
            continue
        if in_the_way or now not in {None, was.get(entry.path)}:
            overruled.append(entry.path)
        else:
            kept.append(entry)
    return tuple(kept), overruled


class Finder:
    """Looks for what an earlier job has left."""

    def __init__(
        self,
        hosts: Sequence[Host],
        everyone: Callable[[], Sequence[Host]],
        remotes: Mapping[str, Remote],
        reach: Reach,
        say: Say,
    ) -> None:
        """Args:
        hosts: the new job's nodes.
        everyone: reads all hosts of the inventory: LIMIT says where the new job runs, not where the earlier one ran.
        remotes: the connections that are open.
        reach: connects to a node, unless it is connected.
        """
        self._hosts, self._read_everyone, self._remotes, self._reach, self._say = hosts, everyone, remotes, reach, say

    @cached_property
    def _everyone(self) -> Sequence[Host]:
        return self._read_everyone()

    def find(self, job: Earlier) -> Inherited:
        """Return what a job has left to continue from.

        Raises:
            RingmasterError: it still runs, its first node can't be asked (both 3), or it has left nothing (4).
        """
        head = self._host(job.head, job.address) if job.head else None
        try:
            checkpoint = resume.newest(job, head, self._reach, self._say)
        except NoCheckpointError:
            work = self._work(job)
            if not any(each.files.entries for each in work):
                raise
            note = f"continues from job {job.folder.name}: its working folder's files; CHECKPOINT_DIR has nothing valid"
            checkpoint = Checkpoint(job=job.folder.name, folder="", entries=(), step=None, changed=0.0, notes=(note,))
        else:
            work = self._work(job)
        return Inherited(checkpoint=checkpoint, host=head, address=job.address, work=work)

    def _host(self, name: str, address: str) -> Host | None:
        return resume.find_host(name, address, self._hosts) or resume.find_host(name, address, self._everyone)

    def _work(self, job: Earlier) -> tuple[Work, ...]:
        if job.stored.get("code") is None:
            return ()
        nodes = job.stored["nodes"][: len(self._hosts)]  # nobody would get what others had
        hosts = [self._host(node["name"], node["address"]) if job.head else None for node in nodes]
        connected = {host.name: self._remotes[host.name] for host in hosts if host and host.name in self._remotes}
        answers = on_all(connected, partial(self._asked, job))
        for host in hosts:
            if host and host.name not in answers:
                with suppress(*Trouble), self._reach(host) as remote:
                    answers[host.name] = self._asked(job, remote)
        return tuple(
            self._there(job, node, host, answers.get(host.name)) if host else self._here(job, node)
            for node, host in zip(nodes, hosts, strict=True)
        )

    def _asked(self, job: Earlier, remote: Remote) -> dict[str, Any] | None:
        try:
            folder = f"{job_dir(remote.host)}/{job.folder.name}"
            return Call(remote, ("describe", folder), self._say, program=PROGRAM).ask([])
        except Trouble as error:
            self._say(
                f"{remote.name}: can't be asked what job {job.folder.name} wrote there ({error}); the copy counts"
            )
            return None

    def _there(self, job: Earlier, node: Mapping[str, Any], host: Host, answer: Mapping[str, Any] | None) -> Work:
        """What a node has; what is here, where it no longer has it."""
        if not answer or not answer["there"] or answer["node"] not in {"", node["name"]}:
            return self._here(job, node)
        if not resume.same_plan(answer["plan"], job.stored):
            return self._here(job, node)
        try:
            entries = parse(manifest_of(Entry(*row) for row in answer["files"]))
            was = {str(path): str(content) for path, content in answer["was"].items()}
            folder, changed = str(answer["folder"]), float(answer["changed"])
            for problem in answer["problems"]:
                self._say(f"{host.name}: left out: {problem}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RingmasterError(
                f"{host.name}: its answer about the working folder can't be read ({error})"
            ) from error
        files = Checkpoint(
            job=job.folder.name, node=host.name, folder=folder, entries=entries, step=None, changed=changed
        )
        return Work(files=files, was=was, host=host, address=node["address"])

    @staticmethod
    def _here(job: Earlier, node: Mapping[str, Any]) -> Work:
        folder = job.folder.work_of(node["name"], head=node["node_rank"] == 0)
        entries = files_below(folder)
        files = Checkpoint(job=job.folder.name, folder=str(folder), entries=entries, step=None, changed=0.0)
        return Work(files=files, was=replaced_here(job.folder).get(node["name"], {}))


def files_below(top: Path) -> tuple[Entry, ...]:
    """Return the files and links below a folder here; none if there is no such folder.

    Raises:
        RingmasterError: a file can't be read.
    """
    entries = []
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        for path in (here / name for name in (*files, *(each for each in folders if (here / each).is_symlink()))):
            name = str(path.relative_to(top))
            if path.is_symlink():
                entries.append(Entry(name, PLAIN, link=str(path.readlink())))
            elif path.is_file():
                entries.append(hashed_entry(top, name))
    return in_order(entries)


def bring(
    inherited: Inherited,
    remotes: Mapping[str, Remote],
    plan: Plan,
    folder: JobFolder,
    owners: Mapping[str, str],
    reach: Reach,
    say: Say,
) -> None:
    """Bring what the job continues from to all of its nodes.

    Args:
        folder: the new job's, here.
        owners: by node, uid:gid of the job's user.

    Raises:
        RingmasterError: it failed on a node.
    """
    places = {
        node.name: Place(folder=f"{planned_job_dir(node)}/{plan.name}", owner=owners[node.name], address=node.address)
        for node in plan.nodes
    }
    if inherited.checkpoint.entries:
        source = Work(files=inherited.checkpoint, host=inherited.host, address=inherited.address)
        tree, holders, here = _tree(source, folder.checkpoints, reach, say, "the checkpoint")
        bring_checkpoint(remotes, tree, places, holders, here, say)
    if not inherited.work:
        return
    groups: dict[int, tuple[Work, list[str]]] = {}
    for node in plan.nodes:
        work = inherited.of(node.node_rank)
        if work.files.entries:
            groups.setdefault(id(work), (work, []))[1].append(node.name)
    head = plan.nodes[0].name
    for work, names in groups.values():
        target = folder.work_of(names[0], head=names[0] == head)
        tree, holders, here = _tree(work, target, reach, say, WHAT)
        group = {name: remotes[name] for name in names}
        folders = {name: f"{places[name].folder}/{ARRIVED}" for name in names}
        spread(group, tree, folders, {name: places[name].address for name in names}, holders, here, say, what=WHAT)
        on_all(group, partial(_merge, places, tree.hash, say))


def _merge(places: Mapping[str, Place], tree_hash: str, say: Say, remote: Remote) -> None:
    place = places[remote.name]
    Call(remote, ("merge", place.folder, tree_hash, place.owner), say, program=PROGRAM).ask([])


def _tree(
    source: Work, target: Path, reach: Reach, say: Say, what: str
) -> tuple[FileTree, list[Holder], Callable[[], FileTree]]:
    """Return files as a tree, who has it, and how it comes to this machine if the nodes can't reach each other."""
    files, host = source.files, source.host
    tree = tree_of(files, Path(files.folder))
    if not files.node or host is None:
        return tree, [], lambda: tree
    holders = [Holder(name=host.name, address=source.address, top=files.folder)]
    return tree, holders, Home(files, target, lambda: reach(host), say, what=what)
