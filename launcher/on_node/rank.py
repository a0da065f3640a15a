"""Run one rank's program under torchrun: label what it prints, report how it ends, leave nothing behind.

torchrun starts this file once per rank (`--no-python`), also inside a container, so it is one file, however long: only
the standard library, no sibling imports. It is a parent process instead of code inside the program, because then the
program is exactly what `python script.py` would run, and a crash of the interpreter (SIGSEGV, SIGKILL) is reported too.

The environment names the program, as shell words, because torchrun rewrites `$$` and `${local_rank}` in arguments:

- RINGMASTER_PROGRAM: interpreter, its options and the script
- RINGMASTER_ARGUMENTS: the script's arguments
- RINGMASTER_CODE_PATH: folders in which Python finds the program's modules, before those of the user's PYTHONPATH.
  Only the program gets them: torchrun must not import the user's logging.py
- RINGMASTER_LOCAL_RANK_FLAG: `--local-rank` or `--local_rank` for launch-style scripts, else empty
- RINGMASTER_OWN_PORT: a port for a program that may start processes of its own: they meet there, because the store at
  torchrun's port knows only torchrun's ranks; SIGINT is handed on to these processes too
- RINGMASTER_SECRETS: a file of `KEY=value` lines for the program's environment; in what it prints, values are masked
- RINGMASTER_CHECK_GPUS: 1 refuses to start it if there are fewer GPUs than RINGMASTER_GPUS, or if their driver is too
  old for RINGMASTER_CUDA

It prints a stream of frames, one a line. Each write holds whole ones and is short enough (PIPE_BUF) to reach a pipe
without being mixed up with what other ranks write:

- RS rank `|` text: a whole line of the program
- RS rank `+` text: a piece of a line that continues in the rank's next frame
- RS rank `!` JSON: an event. Times ("at", "error_at") are unix time by this machine's clock.
  {"event": "started", "pid", "at"}
  {"event": "told", "signal", "at", "state", "catches"}: the program was handed a signal that asks it to end, for the
  first time; "state" is the kernel's letter for what it was doing then (T: it was frozen, by SIGSTOP or a debugger);
  "catches": whether it has a handler of its own for that signal
  {"event": "exited", "exit_code", "signal", "error_at", "at", "told": {"signal", "at"} or null}, with "refused": true
  if it was not started because of the GPUs
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

FRAME = b"\x1e"
LINE, PIECE, EVENT = b"|", b"+", b"!"
PROGRAM, ARGUMENTS, LOCAL_RANK_FLAG = "RINGMASTER_PROGRAM", "RINGMASTER_ARGUMENTS", "RINGMASTER_LOCAL_RANK_FLAG"
OWN_PORT, SECRETS, CODE_PATH = "RINGMASTER_OWN_PORT", "RINGMASTER_SECRETS", "RINGMASTER_CODE_PATH"
GPUS, CHECK_GPUS, CUDA = "RINGMASTER_GPUS", "RINGMASTER_CHECK_GPUS", "RINGMASTER_CUDA"

_AS_HEX = "hex:"
_FIRST_TO_GO = "500"
"""For the out-of-memory killer it counts as if it held half of all memory on top of its own."""
_WRITE_BYTES = 4096  # PIPE_BUF on Linux
_PIECE_BYTES = 4000  # of a line, in one frame: room for the frame's head
_LONGEST_LINE_BYTES = 1 << 20  # a longer line is cut here, so that it can't take all our memory
_PAUSE_SECONDS = 0.002
"""Between two reads. A program that prints much is read in large portions: each costs as much as a single line."""
_PROGRESS_SECONDS = 1.0  # a progress bar redraws its line many times a second; keep one a second
_OVERWRITTEN_AT_ONCE = 10
"""Of different texts that are drawn over, so many are kept at once, and then one a second: a status that shows names of
files is drawn as often as a bar."""
_MOST_ROWS = 64  # that bars below each other may take
_LEAVES = re.compile(rb"\n|\r|\x1b\[(\d*)([ABEF])")  # the line that is being written: its end, or the cursor moves
_ERASES = re.compile(rb"\x1b\[[0-9;]*[GHJK]|\x1b\[\?25[hl]")  # what goes with that, and shows nothing itself
_DRAWS = re.compile(rb"\r|\x1b\[(?:[0-9;]*[ABEFGHJK]|\?25[hl])")
_ESCAPE_BEGINS = re.compile(rb"\x1b(?:\[[0-9;?]*)?\Z")
_WORDS = re.compile(r"[^\W\d_]+")
_COMPARED_BYTES = 500
_ERROR_START = b"Traceback (most recent call last)"
_ABORT_STARTS = (b"Fatal Python error", b"terminate called")
_AFTERMATH_SECONDS = 5.0
"""An abort this soon after a traceback is most likely its consequence: the trouble began with the traceback."""
_LAST_WORDS_SECONDS = 0.5
"""After the end of a program that failed, or was asked to end: so long others that print are heard."""
_LINGER_SECONDS, _SILENT_SECONDS = 60.0, 10.0
"""After a good end: how long we wait for processes that it started and that still print, and how long in silence."""
_LINGER_SAID_SECONDS = 3.0
"""Then we say so. torch's own keeper of shared memory ends two seconds after the program."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DATA_WORKER = b"pt_data_worker"
"""The name that torch gives the processes which read data."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_USAGE, _NOT_STARTED, _NO_PROGRAM = 2, 3, 127  # exit codes: Ringmaster's own two, and the shell's

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What the job itself sets, or what steers the program before it begins; a secret must not replace it.
_TAKEN = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|(RUN|DATA|CHECKPOINT)_DIR|HOME|PATH|OMP_NUM_THREADS"
    r"|(CUDA|NVIDIA)_VISIBLE_DEVICES|(MASTER_|RINGMASTER_|TORCHELASTIC_|NCCL_|GLOO_|PYTHON).*"
    r"|LD_(PRELOAD|AUDIT|LIBRARY_PATH)"
)
_SHORTEST_MASKED = 4  # shorter values occur in every other line, so masking them would hide nothing
_MASK = b"***"


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process `signum` when its parent dies; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def parse_secrets(text: bytes) -> dict[str, str]:
    """Return the variables of a secrets file: `KEY=value` lines; the value is every byte after the first `=`.

    Raises:
        ValueError: a line is wrong; the message names the line, but nothing of its content.
    """
    secrets: dict[str, str] = {}
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        key, equals, value = os.fsdecode(line).partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise ValueError(f"line {number} is not KEY=value (KEY: letters, digits and _; no spaces, no export)")
        if _TAKEN.fullmatch(key):
            raise ValueError(
                f"line {number}: its KEY is one that Ringmaster, torchrun or the system sets; choose another"
            )
        if key in secrets:
            raise ValueError(f"line {number}: its KEY is in an earlier line too")
        if "\r" in value or "\0" in value:
            raise ValueError(f"line {number} holds a carriage return or a zero byte; save it with Unix line ends")
        secrets[key] = value
    return secrets


class Masker:
    """Replaces each secret in a line with `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        masked = {os.fsencode(each) for each in secrets if len(each.strip()) >= _SHORTEST_MASKED}
        values = sorted(masked, key=len, reverse=True)  # the longest first: one may be the beginning of another
        self._pattern = re.compile(b"|".join(map(re.escape, values))) if values else None
        self.overlap = len(values[0]) - 1 if values else 0
        """How many bytes at the end of a text may be the beginning of a secret."""

    def __call__(self, text: bytes) -> bytes:
        return self._pattern.sub(_MASK, text) if self._pattern else text


class _Row:
    """A line of the screen that may be drawn over."""

    def __init__(self, seen_at: float) -> None:
        self.text: bytes | None = None
        """What stands there; None: nothing was written yet."""
        self.waits = False
        """Whether that text was not passed on yet."""
        self.seen: bytes | None = None
        """The last text of this line that was passed on."""
        self.seen_at = seen_at

    @property
    def blank(self) -> bool:
        return not (self.text or b"").strip()

    def pass_on(self, now: float) -> bytes:
        self.waits, self.seen, self.seen_at = False, self.text, now
        return self.text or b""


class LineSplitter:
    """Splits a byte stream into lines; of lines that are drawn over (progress bars), it keeps what a person needs.

    A text that another one replaces, by `\\r` or because the cursor went up to it, is kept if their words differ. Else
    it is a bar that is drawn again, with other figures: one state a second is kept, and always the last.
    """

    def __init__(self, mask: Masker | None = None) -> None:
        self._mask = mask or Masker()
        self._partial = b""
        self._rows = [_Row(-math.inf)]
        """The lines to which the cursor has gone up; nearly always there is only the one that is being written."""
        self._row = 0
        self._allowance, self._counted_at = float(_OVERWRITTEN_AT_ONCE), 0.0
        """How many different texts may be kept, and when that was."""

    def feed(self, data: bytes, now: float) -> Iterator[bytes]:
        """Yield the whole lines that `data` (received at `now`, seconds) completes; without data, what has waited."""
        data = (self._partial + data).replace(b"\r\n", b"\n")
        if self._fresh and b"\r" not in data and not (b"\x1b" in data and _DRAWS.search(data)):
            *lines, self._partial = data.split(b"\n")
            yield from lines
        else:
            yield from self._drawn(data, now)
        if len(self._partial) > _LONGEST_LINE_BYTES:
            # Mask before cutting, because the cut may go through a secret; keep what may be the beginning of one.
            masked = self._mask(self._partial)
            end = len(masked) - self._mask.overlap
            yield masked[:end]
            self._partial = masked[end:]
        for row in self._rows:
            if row.waits and not row.blank and now - row.seen_at >= _PROGRESS_SECONDS:
                yield row.pass_on(now)

    def finish(self) -> Iterator[bytes]:
        """Yield what is left when the stream ends without a final newline."""
        rest, self._partial = _ESCAPE_BEGINS.sub(b"", self._partial), b""
        if rest:
            yield from self._write(rest, self._counted_at)
        yield from (row.pass_on(math.inf) for row in self._rows if row.waits and (not row.blank or row.text == rest))

    @property
    def _fresh(self) -> bool:
        """Whether the cursor is in a line in which nothing stands."""
        return len(self._rows) == 1 and self._rows[0].text is None

    def _drawn(self, data: bytes, now: float) -> Iterator[bytes]:
        start = 0
        for found in _LEAVES.finditer(data):
            yield from self._write(data[start : found.start()], now)
            start = found.end()
            if found[0] == b"\n":
                yield from self._next_line(now)
            elif found[2]:
                rows = min(int(found[1][:3] or 1), _MOST_ROWS) * (-1 if found[2] in b"AF" else 1)
                self._row = self._row + rows
                while self._row < 0:  # a line that was passed on before
                    self._rows.insert(0, _Row(self._rows[0].seen_at))
                    self._row += 1
                self._row = min(self._row, len(self._rows) - 1)
                yield from self._forget_rows(now)
        self._partial = data[start:]

    def _write(self, piece: bytes, now: float) -> Iterator[bytes]:
        """Write a text into the cursor's line, over what stands there."""
        row, text = self._rows[self._row], _ERASES.sub(b"", piece)
        if not text or (not text.strip() and row.text is not None):
            return  # the line is only wiped
        if row.waits and not row.blank and not _same_bar(row.text, text) and self._may_keep(now):
            yield row.pass_on(now)
        row.waits = row.waits or row.text != text
        row.text = text

    def _next_line(self, now: float) -> Iterator[bytes]:
        row = self._rows[self._row]
        if self._row < len(self._rows) - 1:
            self._row += 1
            if row.waits and not row.blank and not _same_bar(row.seen, row.text):
                yield row.pass_on(now)
            return
        for each in self._rows:
            if each.waits and (each is row or not each.blank):
                yield each.pass_on(now)
        if row.text is None:
            yield b""
        self._rows, self._row = [_Row(row.seen_at)], 0

    def _forget_rows(self, now: float) -> Iterator[bytes]:
        while len(self._rows) > _MOST_ROWS:
            row = self._rows.pop(0 if self._row else -1)
            self._row = max(0, self._row - 1)
            if row.waits and not row.blank:
                yield row.pass_on(now)

    def _may_keep(self, now: float) -> bool:
        self._allowance = min(_OVERWRITTEN_AT_ONCE, self._allowance + now - self._counted_at)
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _same_bar(before: bytes | None, after: bytes | None) -> bool:
    """Return whether one text is the other drawn again: they have the same words."""
    return before is not None and after is not None and _words(before) == _words(after)


def _words(text: bytes) -> list[str]:
    """Return a text's words in any order: a bar says `it/s`, later maybe `s/it`."""
    return sorted(_WORDS.findall(text[:_COMPARED_BYTES].decode(errors="ignore")))


class Frames:
    """Writes frames of one rank to standard output."""

    def __init__(self, rank: str, mask: Masker | None = None) -> None:
        self._head = FRAME + rank.encode()
        self._mask = mask or Masker()

    def lines(self, lines: Sequence[bytes]) -> None:
        text = self._mask(b"\n".join(lines))  # no secret has a newline
        if len(text) > _PIECE_BYTES:
            lines = text.split(b"\n")
            if max(map(len, lines)) > _PIECE_BYTES:
                for line in lines:
                    self._pieces(line)
                return
        self._write(LINE, text.replace(b"\n", b"\n" + self._head + LINE))

    def _pieces(self, line: bytes) -> None:
        for start in range(0, max(1, len(line)), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            self._write(PIECE if end < len(line) else LINE, line[start:end])

    def event(self, name: str, **fields: Any) -> None:
        self._write(EVENT, json.dumps({"event": name, **fields}).encode())

    def _write(self, kind: bytes, text: bytes) -> None:
        """Write a frame; `text` may hold the frames that follow."""
        data, start = self._head + kind + text + b"\n", 0
        while start < len(data):
            end = (data.rfind(b"\n", start, start + _WRITE_BYTES) + 1) or len(data)  # a long event is all there is
            # The reader may be gone (a launcher that was killed): then the program ends by other means, not by EPIPE.
            with suppress(BrokenPipeError):
                os.write(1, data[start:end])
            start = end


def command(environment: dict[str, str]) -> list[str]:
    """Take the program's words out of `environment` and return its command line."""
    words = shlex.split(decoded(environment.pop(PROGRAM)))
    flag = environment.pop(LOCAL_RANK_FLAG, "")
    if flag:
        words.append(f"{flag}={environment['LOCAL_RANK']}")
    code_path = decoded(environment.pop(CODE_PATH, ""))
    if code_path:
        environment["PYTHONPATH"] = ":".join(filter(None, (code_path, environment.get("PYTHONPATH"))))
    own_port = environment.pop(OWN_PORT, "")
    if own_port:
        # Otherwise torch takes every store for torchrun's, even one at an address of the program's own, and waits for a
        # server that nobody starts.
        environment |= {"MASTER_PORT": own_port, "TORCHELASTIC_USE_AGENT_STORE": "False"}
    return words + shlex.split(decoded(environment.pop(ARGUMENTS, "")))


def encoded(words: str) -> str:
    """Return words in a form that a container's variable can hold: engines don't keep bytes that aren't UTF-8."""
    content = os.fsencode(words)
    try:
        plain = not content.decode().startswith(_AS_HEX)
    except UnicodeDecodeError:
        plain = False
    return words if plain else _AS_HEX + content.hex()


def decoded(words: str) -> str:
    """Undo `encoded`."""
    return os.fsdecode(bytes.fromhex(words[len(_AS_HEX) :])) if words.startswith(_AS_HEX) else words


def gpu_problem(environment: Mapping[str, str]) -> str | None:
    """Return in one line why the planned GPUs can't be used; None if they can, or if the check is off."""
    planned = int(environment.get(GPUS) or "0")
    if not planned or environment.get(CHECK_GPUS) != "1":
        return None
    count, driver, reason = _in_a_child(look_for_gpus)
    if count < planned:
        return (
            f"{planned} GPU(s) are planned for this node, the container sees {count or f'none ({reason})'}: check the "
            "driver on the node (nvidia-smi) and what gives its GPUs to containers (make verify); to train without "
            "them: GPUS=0"
        )
    needed = environment.get(CUDA, "")
    major = needed.partition(".")[0]
    if major.isdecimal() and driver // 1000 < int(major):
        return (
            f"the image is made for CUDA {needed}, the driver of this node knows only CUDA {driver // 1000}."
            f"{driver % 1000 // 10}: update the driver, or make the image for an older CUDA; to train without GPUs: "
            "GPUS=0"
        )
    return None


def look_for_gpus() -> tuple[int, int, str]:
    """Return how many GPUs libcuda sees, its driver's CUDA version (13020 is 13.2), and why there are none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, 0, "there is no libcuda.so.1" if "No such file" in str(error) else str(error)
    version, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p()
    calls = {
        "cuDriverGetVersion": ctypes.byref(version),
        "cuInit": ctypes.c_uint(0),
        "cuDeviceGetCount": ctypes.byref(count),
    }
    for function, argument in calls.items():
        code = cuda[function](argument)
        if code:
            cuda.cuGetErrorName(code, ctypes.byref(name))
            return 0, version.value, f"{function}: {(name.value or str(code).encode()).decode()}"
    return count.value, version.value, "libcuda.so.1 counts none"


def _in_a_child(look: Callable[[], tuple[int, int, str]]) -> tuple[int, int, str]:
    """Look in a child process, so that no device stays open while the job runs, and a crash there ends nothing."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(Exception):
            os.write(write_end, json.dumps(look()).encode())
        os._exit(0)
    os.close(write_end)
    text = os.read(read_end, 4096)  # written in one piece; empty if the child crashed
    os.close(read_end)
    os.waitpid(child, 0)
    count, driver, reason = json.loads(text) if text else (0, 0, "libcuda.so.1 failed")
    return count, driver, reason


def _prepare_child() -> None:
    die_with_parent()
    if sys.platform == "linux":
        # Whoever ends a rank signals our group (torchrun does, twice), and we hand it on: once. Like a program that a
        # shell starts, ours leads a group of its own. Elsewhere a group is all that finds its helpers (`base/sweep`).
        os.setpgid(0, 0)
    # If memory runs out, the kernel ends this process before torchrun, whose end would tell less about the cause.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_FIRST_TO_GO)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _end_like(returncode: int) -> None:
    """End the way the program did, so that torchrun sees its exit code or signal."""
    if returncode >= 0:
        os._exit(returncode)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file, the program's own, is enough
    if -returncode != signal.SIGKILL:
        signal.signal(-returncode, signal.SIG_DFL)
    os.kill(os.getpid(), -returncode)
    os._exit(128 - returncode)


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:  # real-time signals have no names
        return f"signal {signum}"


class Lingering:
    """How long the output of a program that has ended is read: what it started may hold it open for ever. Pure."""

    def __init__(self, *, patient: bool, now: float) -> None:
        """Args:
        patient: the program has ended well, by itself.
        """
        self._patient = patient
        self._since = self._heard_at = now
        self._said = False

    def over(self, now: float, *, heard: bool = False, hurried: bool = False) -> bool:
        """Return whether it was long enough.

        Args:
            heard: something has come just now.
            hurried: we are asked to end.
        """
        if heard:
            self._heard_at = now
        if not self._patient or hurried:
            return not heard or now - self._since > _LAST_WORDS_SECONDS
        return now - self._since > _LINGER_SECONDS or now - self._heard_at > _SILENT_SECONDS

    def remark(self, now: float) -> str | None:
        """Return, once, that we wait; None: not yet, or said already."""
        if self._said or not self._patient or now - self._since < _LINGER_SAID_SECONDS:
            return None
        self._said = True
        return (
            "ringmaster: the program has ended, something that it started still holds its output: waiting for that, "
            f"{_LINGER_SECONDS:.0f} s at most, {_SILENT_SECONDS:.0f} s if nothing is printed"
        )


def _relay(
    child: subprocess.Popen[bytes], frames: Frames, mask: Masker, hurried: Callable[[], bool] = lambda: False
) -> float | None:
    """Pass on the child's lines until it ends; return the unix time at which its last error began.

    Args:
        hurried: whether we are asked to end.
    """
    splitter, error_at = LineSplitter(mask), None
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    selector = selectors.DefaultSelector()
    selector.register(descriptor, selectors.EVENT_READ)
    lingering: Lingering | None = None
    while True:
        if lingering is None and child.poll() is not None:
            lingering = Lingering(patient=child.returncode == 0 and not hurried(), now=time.monotonic())
        ready = bool(selector.select(timeout=0.1))
        data = os.read(descriptor, 65536) if ready else b""
        if ready and not data:
            break
        error_at = _trouble(data, time.time(), error_at)
        now = time.monotonic()
        if lines := list(splitter.feed(data, now)):
            frames.lines(lines)
        # This is asked after a read, which takes all that the pipe held, so the program's last output is there even if
        # we stall.
        if lingering is not None:
            if lingering.over(now, heard=ready, hurried=hurried()):
                break
            if remark := lingering.remark(now):
                frames.lines([remark.encode()])
        if ready:
            time.sleep(_PAUSE_SECONDS)
    if rest := list(splitter.finish()):
        frames.lines(rest)
    return error_at


class SignalDesk:
    """Hands signals on to the program, and remembers the first one that asked it to end."""

    def __init__(self, child: subprocess.Popen[bytes], frames: Frames, *, starts_own: bool = False) -> None:
        """Args:
        frames: nobody else's: a signal comes while the rank's lines are being written.
        starts_own: the program starts the training processes itself; SIGINT goes to them too.
        """
        self.told: dict[str, Any] | None = None
        """That signal and when it came; None: the program was not asked to end."""
        self.hurried = False
        """Whether a signal came that asks to end."""
        self._handed_on: set[int] = set()
        self._child = child
        self._frames = frames
        self._starts_own = starts_own

    def open(self) -> None:
        """Begin to hand signals on, those included that have come already."""
        for signum in _FORWARDED:
            signal.signal(signum, self._forward)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)

    def _forward(self, signum: int, _frame: object) -> None:
        now, code = time.time(), self._child.poll()
        self.hurried = self.hurried or signum in _ENDING
        # Whoever ends a job tells everybody: the launcher its ranks and their agent, the agent, twice, its ranks.
        if signum == signal.SIGTERM and signum in self._handed_on:
            return
        self._handed_on.add(signum)
        state = state_of(self._child.pid) if code is None else ""
        catches = code is None and catches_signal(self._child.pid, signum)
        if code is None:
            self._child.send_signal(signum)  # before anything is written: nobody may be reading
            if signum == signal.SIGINT and self._starts_own:
                interrupt_helpers(self._child.pid)
        if signum not in _ENDING or self.told is not None:
            return
        if code is None:
            self.told = {"signal": _signal_name(signum), "at": now}
            self._frames.event("told", **self.told, state=state, catches=catches)
        elif code in (-signum, 128 + signum):
            # The signal was sent to the process group, and has reached the program without us.
            self.told = {"signal": _signal_name(signum), "at": now}


def interrupt_helpers(leader: int) -> None:
    """Send SIGINT to all other processes of the group that a program leads, as a terminal's Ctrl-C does.

    torch's data workers are left out: they would end of it without a word, and whoever is about to save a checkpoint
    would fail for want of its next batch. They end with the process that started them.
    """
    with suppress(OSError):  # there is no /proc
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == leader:
                continue
            with suppress(OSError, IndexError, ValueError):  # it has ended
                with open(f"/proc/{entry}/stat", "rb") as file:
                    before, _, after = file.read().rpartition(b")")
                if int(after.split()[2]) == leader and before.partition(b"(")[2] != _DATA_WORKER:
                    os.kill(int(entry), signal.SIGINT)


def state_of(pid: int) -> str:
    """Return the kernel's letter for what a process is doing; empty if that can't be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def catches_signal(pid: int, signum: int) -> bool:
    """Return whether a process has a handler of its own for a signal, as far as that can be known."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            caught = next(line.split()[1] for line in file if line.startswith(b"SigCgt:"))
        return bool(int(caught, 16) >> (signum - 1) & 1)
    except (OSError, StopIteration, IndexError, ValueError):
        return False


def _trouble(data: bytes, now: float, before: float | None) -> float | None:
    """When the last error began, if the output `data` shows one; the program survived the earlier ones."""
    if _ERROR_START in data:
        return now
    if any(start in data for start in _ABORT_STARTS) and (before is None or now - before > _AFTERMATH_SECONDS):
        return now
    return before


def _end_unstarted(frames: Frames, exit_code: int, reason: str, **fields: Any) -> NoReturn:
    frames.lines([os.fsencode(reason)])
    now = time.time()
    frames.event("exited", exit_code=exit_code, signal=None, error_at=now, at=now, told=None, **fields)
    os._exit(exit_code)


def _secrets(path: str, frames: Frames) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            return parse_secrets(file.read())
    except OSError as error:
        _end_unstarted(frames, _USAGE, f"the secrets file {path} can't be read: {error.strerror}")
    except ValueError as error:
        _end_unstarted(frames, _USAGE, f"the secrets file {path}: {error}")


def main() -> None:
    """Run the program that the environment names, and end as it ends."""
    environment = dict(os.environ)
    frames = Frames(environment["RANK"])
    starts_own = OWN_PORT in environment
    words = command(environment)
    path = environment.pop(SECRETS, "")
    secrets = _secrets(path, frames) if path else {}
    if secrets:
        # torch's `record` writes an exception's text into this file, and torchrun prints it unmasked.
        environment.pop("TORCHELASTIC_ERROR_FILE", None)
    mask = Masker(secrets.values())
    frames = Frames(environment["RANK"], mask)
    # Signals stay blocked until there is a child to hand them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    die_with_parent()
    if problem := gpu_problem(environment):
        # Every rank looks, since none may start; one reports it for all of its node.
        reason = problem if environment.get("LOCAL_RANK") == "0" else "not started: see the node's first rank"
        _end_unstarted(frames, _NOT_STARTED, reason, refused=True)
    try:
        child = subprocess.Popen(
            words,
            env={**environment, **secrets},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_prepare_child,
        )
    except OSError as error:
        _end_unstarted(frames, _NO_PROGRAM, f"cannot start {words[0]}: {error.strerror}")

    frames.event("started", pid=os.getpid(), at=time.time())
    desk = SignalDesk(child, Frames(environment["RANK"]), starts_own=starts_own)
    desk.open()
    error_at = _relay(child, frames, mask, lambda: desk.hurried)
    returncode = child.wait()
    frames.event(
        "exited",
        exit_code=returncode if returncode >= 0 else 128 - returncode,
        signal=_signal_name(-returncode) if returncode < 0 else None,
        error_at=error_at,
        at=time.time(),
        told=desk.told,
    )
    _end_like(returncode)


if __name__ == "__main__":
    main()
