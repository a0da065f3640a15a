"""From here to the nodes: code into a store of blobs there; data over our own line once, then from node to node.

Checkpoints travel like data (`checkpoint`), at best from node to node alone.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer.file_tree import FileTree
from launcher.on_node import tree_store
from launcher.on_node.tree_store import END, block, piece
from launcher.ssh.connection import Remote
from launcher.ssh.pool import on_all
from launcher.ssh.program import command_line

Say = Callable[[str], None]
SOURCE = Path(tree_store.__file__).read_text(encoding="utf-8")
"""The program that runs on the nodes."""
_PYTHON = ("python3", "-IS", "-c")
SENDING = command_line((*_PYTHON, SOURCE, "send")).encode()
"""How a node starts it on another one, whose login shell may be any too."""
_NOT_STARTED = ExitCode.NOT_STARTED
_PATIENCE_S = 20
"""The node before another one in a chain begins at about the same time; it may have to start Python first."""
_SEND_BYTES = 1 << 20
"""Small files are joined up to this size: two threads have to meet for each piece."""
_REMEDIES = {
    "ENOSPC": "free some space there",
    "EDQUOT": "free some of the user's quota there",
    "EACCES": "make provision creates Ringmaster's folders for the SSH user",
    "EPERM": "make provision creates Ringmaster's folders for the SSH user",
    "EROFS": "mount it writable there, or set ringmaster_job_dir and ringmaster_data_dir",
    "EEXIST": "give the job another NAME",
}


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A node that has a tree."""

    name: str
    address: str
    """What the other nodes' SSH uses for it."""
    top: str
    """The tree's folder there."""
    arriving: bool = False
    """It is only about to have it."""


def upload_code(
    remotes: Mapping[str, Remote],
    tree: FileTree,
    job_dirs: Mapping[str, str],
    name: str,
    *,
    owner: tuple[int, int] | None = None,
    say: Say,
    into: str = "code",
) -> None:
    """Make a writable copy of `tree` at <job_dir>/<name>/<into> on all nodes; send only what a node doesn't have yet.

    Args:
        job_dirs: by node.
        owner: uid and gid that the copy gets on nodes where the SSH user is root.
        say: called with the progress, at most once a second for each node, from several threads.

    Raises:
        RingmasterError: it failed on a node.
    """
    owner_word = ":".join(map(str, owner)) if owner else ""

    def place(remote: Remote) -> None:
        folder = job_dirs[remote.name]
        call = Call(remote, ("make", f"{folder}/.code", f"{folder}/{name}/{into}", owner_word), say)
        missing = call.ask([block(tree.manifest)])["missing"]
        if not missing:
            return
        feed = _Feed(remote.name, tree, say)
        if call.ask(chain([block(tree.manifest)], feed.blobs(missing)), feed)["missing"]:
            raise RingmasterError(
                f"{remote.name}: the code has not arrived completely; try again", exit_code=_NOT_STARTED
            )

    on_all(remotes, place)


def upload_data(
    remotes: Mapping[str, Remote], tree: FileTree, data_dirs: Mapping[str, str], addresses: Mapping[str, str], say: Say
) -> str:
    """Bring data to all nodes; return its path below each node's data folder.

    It is sent to one node at most: the others fetch it from a node that has it, over their own network.

    Args:
        data_dirs: by node.
        addresses: by node, the name or address that the other nodes' SSH uses for it.
        say: called with the progress, at most once a second for each node, from several threads.

    Raises:
        RingmasterError: it failed on a node.
    """
    folders = {name: f"{data_dirs[name]}/own" for name in remotes}

    def has(remote: Remote) -> bool:
        return bool(Call(remote, ("have", folders[remote.name], tree.hash), say).ask([])["complete"])

    there = on_all(remotes, has)
    lacking = {name: remote for name, remote in remotes.items() if not there[name]}
    holders = [_holder(name, tree, folders, addresses) for name in remotes if there[name]]
    spread(lacking, tree, folders, addresses, holders, lambda: tree, say)
    return f"own/{tree.hash}/{tree.entries[0].path.partition('/')[0]}"


def spread(
    remotes: Mapping[str, Remote],
    tree: FileTree,
    folders: Mapping[str, str],
    addresses: Mapping[str, str],
    holders: Sequence[Holder],
    here: Callable[[], FileTree],
    say: Say,
    what: str = "the data",
) -> None:
    """Let all nodes fetch a tree along chains that begin at those that have it: each from the one before, as it comes.

    If none has it, or none of those can send it, it is sent from here to one node, where a chain of the others begins.
    A node that fails costs only itself: those behind it go on from others.

    Args:
        folders: by node, in which the tree's folder is made, called by its hash.
        addresses: by node, the name or address that the other nodes' SSH uses for it.
        here: returns the tree as it is on this machine, where it may have to be brought first.
        what: the tree, in a word or two.

    Raises:
        RingmasterError: it failed on a node; the others have it.
    """
    lacking, failures = dict(remotes), []
    first = None if holders else next(iter(lacking), None)
    while lacking:
        places = {name: _holder(name, tree, folders, addresses, arriving=True) for name in lacking}
        sources = chains(places, [places[first], *holders] if first else holders)
        left: dict[str, str] = {}
        try:
            on_all(lacking, lambda remote: left.update(_bring(remote, tree, folders, sources, here, say)))  # noqa: B023  it ends in this round
        except _HereError:
            raise
        except RingmasterError as error:
            failures.append(error)
        lacking = {name: remote for name, remote in lacking.items() if name in left}
        first = next(iter(lacking), None)
        if first:
            say(f"{first}: can't fetch {what} from another node ({left[first]}), so it is sent there too")
    if failures:
        failures[0].args = ("\n".join(str(failure) for failure in failures),)
        raise failures[0]


def _bring(
    remote: Remote,
    tree: FileTree,
    folders: Mapping[str, str],
    sources: Mapping[str, Sequence[Holder]],
    here: Callable[[], FileTree],
    say: Say,
) -> dict[str, str]:
    """Let a node fetch a tree, or send it there; return why it can't fetch it, by its name, or nothing."""
    name = remote.name
    if name not in sources:
        send_tree(remote, here(), folders[name], say)
        return {}
    words = ["fetch", folders[name], tree.hash]
    for place, source in enumerate(sources[name]):
        patience = _PATIENCE_S if source.arriving and place == 0 else 0
        words += ["" if source.name == name else source.address, source.top, str(patience)]
    try:
        Call(remote, words, say).ask([block(tree.manifest), block(SENDING)])
    except _SourceError as error:
        return {name: str(error)}
    return {}


def chains(places: Mapping[str, Holder], holders: Sequence[Holder]) -> dict[str, list[Holder]]:
    """Return for each node which it fetches from: the node before it in its chain, and what it falls back on, in turn.

    Each holder begins a chain. A node that is a holder itself (of an earlier job's checkpoint) begins with its own.

    Args:
        places: by node that lacks the tree, where it will have it; also of a holder that is only about to get it.
    """
    order: dict[str, list[Holder]] = {}
    lacking = [name for name, place in places.items() if place not in holders]
    for number, name in enumerate(lacking):
        own = [holder for holder in holders if holder.name == name]
        before = [places[each] for each in lacking[number % len(holders) : number : len(holders)]][::-1]
        start = number % len(holders)
        order[name] = list(dict.fromkeys([*own, *before, *holders[start:], *holders[:start]]))
    return order


def _holder(
    name: str, tree: FileTree, folders: Mapping[str, str], addresses: Mapping[str, str], *, arriving: bool = False
) -> Holder:
    return Holder(name=name, address=addresses[name], top=f"{folders[name]}/{tree.hash}", arriving=arriving)


def send_tree(remote: Remote, tree: FileTree, folder: str, say: Say) -> None:
    """Send what a node lacks of a tree, from here.

    Raises:
        RingmasterError: it failed.
    """
    wanted = Call(remote, ("want", folder, tree.hash), say).ask([block(tree.manifest)])
    if not wanted["complete"]:
        feed = _Feed(remote.name, tree, say)
        pieces = feed.pieces(wanted["wanted"])
        Call(remote, ("take", folder, tree.hash), say).ask(chain([block(tree.manifest)], pieces), feed)


class _HereError(RingmasterError):
    """What is to be sent can't be read on this machine: no node could get it from here."""


class _SourceError(Exception):
    """A node can't fetch from another one; the message is the reason."""


class _Feed:
    """What is sent to a node, and its progress.

    It is read in a thread of the connection, so nothing is raised there: the stream ends early, and `error` says why.
    """

    def __init__(self, name: str, tree: FileTree, say: Say) -> None:
        self.error: RingmasterError | None = None
        self._name, self._tree, self._say = name, tree, say

    def blobs(self, missing: Sequence[str]) -> Iterator[bytes]:
        """Yield the files with these hashes."""
        first = {entry.sha256: index for index, entry in reversed(list(enumerate(self._tree.entries)))}
        indexes = [first[sha256] for sha256 in missing]
        entries = self._tree.entries

        def each() -> Iterator[bytes]:
            for index in indexes:
                yield b"%b %d\n" % (entries[index].sha256.encode(), entries[index].size)
                body = piece(self._tree.source(entries[index]), index, 0, entries[index].size)
                next(body)  # skip the header of a piece: blobs have their own
                yield from body

        return self._paced(each(), sum(entries[index].size for index in indexes))

    def pieces(self, wanted: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield these files (by index) from these offsets on, then the end mark."""
        entries = self._tree.entries
        each = (
            piece(self._tree.source(entries[index]), index, offset, entries[index].size) for index, offset in wanted
        )
        total = sum(entries[index].size - offset for index, offset in wanted)
        return self._paced(chain(chain.from_iterable(each), [END]), total)

    def _paced(self, parts: Iterable[bytes], total: int) -> Iterator[bytes]:
        """Join small pieces, and report the progress."""
        sent, said_at, waiting, size = 0, time.monotonic(), [], 0
        try:
            for part in parts:
                waiting.append(part)
                size += len(part)
                if size >= _SEND_BYTES:
                    yield b"".join(waiting)
                    sent, waiting, size = sent + size, [], 0
                if time.monotonic() - said_at >= 1:
                    said_at = time.monotonic()
                    self._say(f"{self._name}: sent {amount(min(sent, total))} of {amount(total)}")
            yield b"".join(waiting)
        except OSError as error:
            self.error = _HereError(f"{os.fsdecode(error.filename)}: can't be read ({error.strerror})")
        except ValueError as error:
            self.error = _HereError(f"{self._name}: {error}")


class Call:
    """One call of a program on a node: of `tree_store.py`, or of another one that reports as it does."""

    def __init__(self, remote: Remote, words: Sequence[str], say: Say, program: str = "") -> None:
        self._remote, self._words, self._say, self._program = remote, words, say, program
        self._lock, self._rest, self._last_line = threading.Lock(), b"", ""
        self._answer: dict[str, Any] = {}

    def ask(self, stdin: Iterable[bytes], feed: _Feed | None = None) -> dict[str, Any]:
        """Run it and return its answer.

        Raises:
            _SourceError: the node can't fetch from the other one.
            RingmasterError: it failed, or `feed` did.
        """
        words = (*_PYTHON, self._program or SOURCE, *self._words)
        code = self._remote.stream(words, stdin=stdin, on_output=self._hear)
        if feed is not None and feed.error is not None:
            raise feed.error
        answer, name = self._answer, self._remote.name
        if answer.get("source"):
            raise _SourceError(answer["error"])
        if "error" in answer:
            remedy = _REMEDIES.get(answer.get("errno", ""), "")
            what = ": ".join(filter(None, (name, answer.get("path", ""), answer["error"])))
            raise RingmasterError(f"{what}; {remedy}" if remedy else what, exit_code=_NOT_STARTED)
        if code == 127:
            raise RingmasterError(f"{name}: there is no python3; make provision installs it", exit_code=_NOT_STARTED)
        if code or not answer:
            why = self._last_line or f"exit code {code}"
            raise RingmasterError(f"{name}: files can't be sent there: {why}", exit_code=_NOT_STARTED)
        return answer

    def _hear(self, data: bytes) -> None:
        """Take in what it prints; both its streams arrive here, each in its own thread."""
        with self._lock:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in filter(None, lines):
                try:
                    message = json.loads(line)
                except ValueError:
                    message = None
                if not isinstance(message, dict):
                    self._last_line = line.decode(errors="replace").strip()
                elif "doing" in message:
                    if message["doing"] != "taken":  # we report that ourselves, as what was sent
                        self._say(f"{self._remote.name}: {_progress(message)}")
                else:
                    self._answer = message


def _progress(message: dict[str, Any]) -> str:
    if message["doing"] == "waiting":
        return "waiting for another transfer of the same data"
    if message["doing"] == "moved":
        return f"can't go on from {message['source'] or 'its own copy'} ({message['why']})"
    return f"{message['doing']} {amount(message['done'])} of {amount(message['of'])}"
