"""From a node to here: what a job's program writes into its working folder; only what is new, each file whole."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from launcher.base.errors import RingmasterError
from launcher.base.paths import ON_NODE
from launcher.base.values import amount
from launcher.cluster.transfer.download import GivenUpError, part_of
from launcher.cluster.transfer.policy import Kind, Offer, Policy, restless
from launcher.on_node.work_folder import MOST_FILES
from launcher.ssh.connection import Remote

PROGRAM = (ON_NODE / "work_folder.py").read_text(encoding="utf-8")
"""What runs on the nodes."""
PYTHON = ("python3", "-IS", "-c")
_PROGRESS_S = 5.0
_LOOK_S = 120.0
"""For a node to look at everything, and to read what was touched."""


class Row(NamedTuple):
    """A new or changed file of a working folder, as its node describes it."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    executable: int
    link: str
    """Where it leads, if it is a link."""
    was: str
    """The hash, or the link's target, of what was placed there with the code; empty: nothing."""


@dataclass(kw_only=True)
class WorkDownload:
    """The download of one node's working folder."""

    node: str
    remote: Callable[[], Remote]
    """Returns the connection as it is now."""
    job: PurePosixPath
    """The job's folder there."""
    target: Path
    policy: Policy
    given_up: threading.Event
    """Set by another thread when nobody wants the rest any more."""
    say: Callable[[str], None] = lambda _: None
    """Gets the progress of what takes long."""
    staying: dict[str, str] = field(default_factory=dict)
    """What stays on the node, by path, and why; known once the last fetch is done."""
    replaced: dict[str, str] = field(default_factory=dict)
    """By path of files that took the place of the code's own: the hash of what was there."""
    took_s: float = 0.0
    """How long the node looked."""
    _mark: str = ""
    _rows: list[Row] = field(default_factory=list)
    _look_left: list[str] = field(default_factory=list)
    _home: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """What has come, and how it looked there."""

    @property
    def came(self) -> tuple[int, int]:
        """How many of the node's files are here, and their bytes."""
        sizes = [size for size, _, _ in self._home.values()]
        return len(sizes), sum(sizes)

    def fetch(self, *, finished: bool) -> None:
        """Fetch what is new or changed; a file that is removed there stays here.

        Args:
            finished: whether nobody writes there any more; if somebody does, what looks unfinished has to wait.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError: the connection broke, the node can't look, or the
                disk here is full.
        """
        now = self._look()
        self.staying = dict.fromkeys(self._look_left, "can't be looked at")
        wanted: list[Row] = []
        for row in sorted(self._rows, key=lambda row: row.size):  # many small ones rather than a large one
            offer = Offer(kind=Kind.WORK, node=self.node, path=row.path, size=row.size)
            if self._is_here(row):
                self.policy.came(offer)
            elif not finished and restless(PurePosixPath(row.path).name, row.size, now - row.mtime_ns / 1e9):
                continue
            elif why := self.policy.stays(offer):
                self.staying[row.path] = why
            elif row.link:
                self._link(row)
            else:
                self.policy.came(offer)  # it counts from here on, so that all of one round are within the limit
                wanted.append(row)
        if wanted:
            self._receive(wanted)
        self.replaced = {row.path: row.was for row in self._rows if row.was and row.path in self._home}

    def _look(self) -> float:
        """Learn what is new or changed; return the node's time."""
        words = (*PYTHON, PROGRAM, "list", str(self.job), self._mark)
        done = self.remote().run(words, limit_s=_LOOK_S)
        if done.code:
            raise RingmasterError(f"{self.node}: the working folder can't be looked at: {done.why}")
        try:
            answer = json.loads(done.text.strip().rpartition("\n")[2])
            if not answer["there"]:
                self._rows = []
                return 0.0
            self.took_s = float(answer["took_s"])
            if "same" not in answer:
                self._rows = [row for row in (Row(*each) for each in answer["rows"]) if _proper(row)]
                files, size = map(int, answer["more"])
                more = [f"{files:,} files more, {amount(size)}: only the {MOST_FILES:,} newest come"] if files else []
                self._look_left = [f"{path} ({why})" for path, why in answer["left"]] + more
            self._mark = str(answer["mark"])
            return float(answer["now"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RingmasterError(
                f"{self.node}: its answer about the working folder can't be read ({error})"
            ) from error

    def _is_here(self, row: Row) -> bool:
        """Whether a file has come, to this launcher or to another one here."""
        look = (row.size, row.mtime_ns, row.ctime_ns)
        if row.link or self._home.get(row.path) == look:
            return self._home.get(row.path) == look
        try:
            here = (self.target / row.path).lstat()
        except OSError:
            return False
        same = (here.st_size, here.st_mtime_ns) == (row.size, row.mtime_ns) and row.path not in self._home
        if same:
            self._home[row.path] = look
        return same

    def _link(self, row: Row) -> None:
        end = os.path.normpath(f"{row.path}/../{row.link}")
        if row.link.startswith("/") or end == ".." or end.startswith("../"):
            self.staying[row.path] = "a link that leads out of the folder"
            return
        try:
            here = _made_place(self.target, row.path)
            with part_of(here) as part:
                part.symlink_to(row.link)
                part.replace(here)
        except OSError as error:
            self.staying[row.path] = error.strerror or "can't be made here"
        else:
            self._home[row.path] = (row.size, row.mtime_ns, row.ctime_ns)

    def _receive(self, rows: Sequence[Row]) -> None:
        asked = json.dumps([[row.path, row.size, row.mtime_ns, row.ctime_ns] for row in rows]).encode()
        with ExitStack() as stack:
            incoming = _Incoming(rows, self, stack)
            words = (*PYTHON, PROGRAM, "send", str(self.job))
            done = self.remote().receive(words, stdin=asked, on_output=incoming.take)
        if done.code:
            raise RingmasterError(f"{self.node}: files of the working folder can't be sent: {done.why}")

    def arrived(self, row: Row, part: Path) -> None:
        """Give a whole file its name.

        Raises:
            OSError: it can't have that name here.
        """
        os.utime(part, ns=(row.mtime_ns, row.mtime_ns))
        if row.executable:
            part.chmod(part.stat().st_mode | 0o100)
        part.replace(_made_place(self.target, row.path))
        self._home[row.path] = (row.size, row.mtime_ns, row.ctime_ns)


def _proper(row: Row) -> bool:
    """Whether a row names a file below a folder; nothing that a node says is believed unseen."""
    words = row.path.split("/")
    numbers = (row.size, row.mtime_ns, row.ctime_ns)
    named = not any(word in {"", ".", ".."} or "\0" in word for word in words)
    return named and row.size >= 0 and all(isinstance(number, int) for number in numbers)


def _made_place(target: Path, name: str) -> Path:
    """Return where a file goes, with the folders above it; what was a link there before is none any more.

    Raises:
        OSError: something else is in the way.
    """
    here = target / name
    for folder in reversed(here.relative_to(target).parents[:-1]):
        if (target / folder).is_symlink():
            (target / folder).unlink()
    here.parent.mkdir(parents=True, exist_ok=True)
    return here


class _Incoming:
    """Takes apart what a node sends: for each file a line, its bytes, and a line that says whether it was whole."""

    def __init__(self, rows: Sequence[Row], download: WorkDownload, stack: ExitStack) -> None:
        self._rows = {row.path: row for row in rows}
        self._download, self._stack = download, stack
        self._line = b""
        self._row: Row | None = None
        self._left = 0
        self._part: Path | None = None
        self._file: IO[bytes] | None = None
        self._done, self._total, self._said_at = 0, sum(row.size for row in rows), time.monotonic()

    def take(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            GivenUpError: nobody wants the rest.
            RingmasterError: the disk here is full, or what comes is no answer.
        """
        if self._download.given_up.is_set():
            raise GivenUpError(f"{self._download.node}: the rest of the working folder was not fetched")
        self._pace(len(data))
        view = memoryview(data)
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                self._write(piece)
                continue
            end = bytes(view).find(b"\n")
            if end < 0:
                self._line += view
                return
            line, self._line = self._line + view[:end], b""
            view = view[end + 1 :]
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            message: dict[str, Any] = json.loads(line)
            if "whole" in message:
                self._end(whole=bool(message["whole"]))
                return
            row = self._rows[message["path"]]
        except (ValueError, KeyError, TypeError) as error:
            raise RingmasterError(f"{self._download.node}: what it sends can't be read ({error})") from error
        if "why" in message:
            self._download.staying[row.path] = message["why"] or "it changed while it was fetched"
        else:
            self._begin(row)

    def _begin(self, row: Row) -> None:
        self._row, self._left = row, row.size
        try:
            self._part = self._stack.enter_context(part_of(self._download.target / "file"))
            self._download.target.mkdir(parents=True, exist_ok=True)
            self._file = self._stack.enter_context(self._part.open("wb"))
        except OSError as error:
            raise self._refused(error) from error

    def _write(self, piece: memoryview) -> None:
        assert self._file is not None
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._refused(error) from error

    def _end(self, *, whole: bool) -> None:
        if self._row is None or self._part is None or self._file is None:
            raise RingmasterError(f"{self._download.node}: what it sends can't be read")
        try:
            self._file.close()
        except OSError as error:
            raise self._refused(error) from error
        row, self._row = self._row, None
        try:
            if whole:
                self._download.arrived(row, self._part)
            else:
                self._download.staying[row.path] = "it changed while it was fetched"
        except OSError as error:
            self._download.staying[row.path] = error.strerror or "can't be made here"
        self._stack.pop_all().close()

    def _refused(self, error: OSError) -> RingmasterError:
        return RingmasterError(f"{self._download.target}: can't be written ({error.strerror})")

    def _pace(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._said_at >= _PROGRESS_S:
            self._said_at = time.monotonic()
            done = amount(min(self._done, self._total))
            self._download.say(f"fetching what it wrote into its working folder: {done} of {amount(self._total)}")


def staying_words(staying: Iterable[tuple[str, str]], most: int = 5) -> str:
    """Return in words which files stay on a node, and why."""
    named = [f"{path} ({why})" if why else path for path, why in staying]
    more = f", and {len(named) - most:,} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more
