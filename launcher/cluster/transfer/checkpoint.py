"""The checkpoint that a new job continues from: to all of its nodes, from the one that has it, or once from here."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from launcher.base.values import amount
from launcher.cluster.transfer.download import fetch_file, part_of
from launcher.cluster.transfer.file_tree import FileTree, in_order
from launcher.cluster.transfer.upload import Call, Holder, Say, spread
from launcher.job.checkpoint import Checkpoint
from launcher.ssh.connection import Remote
from launcher.ssh.pool import on_all

WHAT = "the checkpoint"
_PROGRESS_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a node gets the checkpoint."""

    folder: str
    """The new job's."""
    owner: str
    """uid:gid of the job's user."""
    address: str
    """What the other nodes' SSH uses for this one."""


def bring_checkpoint(
    remotes: Mapping[str, Remote],
    tree: FileTree,
    places: Mapping[str, Place],
    holders: Sequence[Holder],
    here: Callable[[], FileTree],
    say: Say,
) -> None:
    """Put a checkpoint into the job's empty folder of checkpoints on every node.

    It travels from node to node; from here only to one node, if no node has it, and to those that can't fetch it.

    Args:
        places: by node.
        holders: the nodes that have it, also such as are none of the job's.
        here: returns the files on this machine, where they may have to be brought first.

    Raises:
        RingmasterError: it failed on a node.
    """
    folders = {name: f"{place.folder}/inherited" for name, place in places.items()}
    addresses = {name: place.address for name, place in places.items()}
    spread(remotes, tree, folders, addresses, holders, here, say, what=WHAT)

    def adopt(remote: Remote) -> None:
        place = places[remote.name]
        words = ("adopt", folders[remote.name], tree.hash, f"{place.folder}/run/checkpoints", place.owner)
        Call(remote, words, say).ask([])

    on_all(remotes, adopt)


def tree_of(checkpoint: Checkpoint, root: Path) -> FileTree:
    """Return a checkpoint's files as a tree below `root`."""
    return FileTree(root=root, entries=in_order(checkpoint.entries))


class Home:
    """Brings a checkpoint from its node to this machine, once, and only if somebody asks for it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        target: Path,
        reach: Callable[[], AbstractContextManager[Remote]],
        say: Say,
        *,
        what: str = WHAT,
    ) -> None:
        """Args:
        target: the folder here that it is brought to.
        reach: connects to the node that has it.
        what: it, in a word or two.
        """
        self._checkpoint, self._target, self._reach, self._say, self._what = checkpoint, target, reach, say, what
        self._lock, self._here, self._said_at = threading.Lock(), False, time.monotonic()

    def __call__(self) -> FileTree:
        """Return the files here; called by several threads.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError: the connection broke, or the disk here is full.
        """
        with self._lock:
            if not self._here:
                with self._reach() as remote:
                    self._fetch(remote)
                self._here = True
        return tree_of(self._checkpoint, self._target)

    def _fetch(self, remote: Remote) -> None:
        for entry in self._checkpoint.entries:
            path = self._target / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.link:
                path.symlink_to(entry.link)
            elif not entry.sha256:
                path.mkdir(exist_ok=True)
            else:
                with part_of(path) as part:
                    fetch_file(remote.sftp(), PurePosixPath(self._checkpoint.folder) / entry.path, part, self._pace)
                    part.replace(path)

    def _pace(self, done: int, total: int) -> None:
        if time.monotonic() - self._said_at >= _PROGRESS_S:
            self._said_at = time.monotonic()
            self._say(f"{self._checkpoint.node}: fetching {self._what}: {amount(done)} of {amount(total)}")
