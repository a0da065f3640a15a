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
  {"event": "told", "signal", "at", "state"}: the program was handed a signal that asks it to end, for the first time;
  "state" is the kernel's letter for what it was doing then (T: it was frozen, by SIGSTOP or a debugger)
  {"event": "exited", "exit_code", "signal", "error_at", "at", "told": {"signal", "at"} or null}, with "refused": true
  if it was not started because of the GPUs
"""

from __future__ import annotations

import ctypes
import json
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
_ERROR_START = b"Traceback (most recent call last)"
_ABORT_STARTS = (b"Fatal Python error", b"terminate called")
_AFTERMATH_SECONDS = 5.0
"""An abort this soon after a traceback is most likely its consequence: the trouble began with the traceback."""
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


class LineSplitter:
    """Splits a byte stream into lines; of `\\r` redraws it keeps one a second, and always the last."""

    def __init__(self, mask: Masker | None = None) -> None:
        self._mask = mask or Masker()
        self._partial = b""
        self._redraw = b""
        self._redrawn_at = 0.0

    def feed(self, data: bytes, now: float) -> Iterator[bytes]:
        """Yield the whole lines that `data` (received at `now`, seconds) completes."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if lines:
            self._redraw = b""
            redrawn = any(b"\r" in line for line in lines)
            yield from (line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines) if redrawn else lines
        if len(self._partial) > _LONGEST_LINE_BYTES:
            # Mask before cutting, because the cut may go through a secret; keep what may be the beginning of one.
            masked = self._mask(self._partial)
            end = len(masked) - self._mask.overlap
            yield masked[:end]
            self._partial = masked[end:]
        # Bars are drawn as "\rtext" or as "text\r"; a final \r stays, since it may be half of a Windows line end.
        ended = self._partial.endswith(b"\r")
        before, redraw, rest = self._partial[: -1 if ended else None].rpartition(b"\r")
        if ended:
            self._redraw = rest
            self._partial = rest + b"\r"
        elif redraw:
            self._partial, self._redraw = rest, before.rpartition(b"\r")[2]
        if self._redraw and now - self._redrawn_at >= _PROGRESS_SECONDS:
            self._redrawn_at = now
            yield self._redraw
            self._redraw = b""

    def finish(self) -> Iterator[bytes]:
        """Yield what is left when the stream ends without a final newline."""
        rest = self._partial.rstrip(b"\r").rpartition(b"\r")[2] or self._redraw
        if rest:
            yield rest


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


def _relay(child: subprocess.Popen[bytes], frames: Frames, mask: Masker) -> float | None:
    """Pass on the child's lines until it ends; return the unix time at which its last error began."""
    splitter, error_at = LineSplitter(mask), None
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    selector = selectors.DefaultSelector()
    selector.register(descriptor, selectors.EVENT_READ)
    ended_at: float | None = None
    while True:
        if ended_at is None and child.poll() is not None:
            ended_at = time.monotonic()
        if not selector.select(timeout=0.1):
            if ended_at is not None:
                break
            continue
        data = os.read(descriptor, 65536)
        if not data:
            break
        error_at = _trouble(data, time.time(), error_at)
        if lines := list(splitter.feed(data, time.monotonic())):
            frames.lines(lines)
        # A grandchild may hold the pipe open for ever: half a second after the program's end is enough. This is asked
        # after a read, which takes all that the pipe held, so the program's last output is there even if we stall.
        if ended_at is not None and time.monotonic() - ended_at > 0.5:
            break
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
        state = state_of(self._child.pid) if code is None else ""
        if code is None:
            self._child.send_signal(signum)  # before anything is written: nobody may be reading
            if signum == signal.SIGINT and self._starts_own:
                interrupt_group(but=self._child.pid)
        if signum not in _ENDING or self.told is not None:
            return
        if code is None:
            self.told = {"signal": _signal_name(signum), "at": now}
            self._frames.event("told", **self.told, state=state)
        elif code in (-signum, 128 + signum):
            # The signal was sent to the process group, and has reached the program without us.
            self.told = {"signal": _signal_name(signum), "at": now}


def interrupt_group(*, but: int) -> None:
    """Send SIGINT to all processes of our group, as a terminal's Ctrl-C does, but not to us and to `but`.

    torch's data workers are left out: they would end of it without a word, and whoever is about to save a checkpoint
    would fail for want of its next batch. They end with the process that started them.
    """
    if os.getpgrp() != os.getpid():
        return  # torchrun makes every rank's parent lead a group; another's group is none of ours
    with suppress(OSError):  # there is no /proc
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in (os.getpid(), but):
                continue
            with suppress(OSError, IndexError, ValueError):  # it has ended
                with open(f"/proc/{entry}/stat", "rb") as file:
                    before, _, after = file.read().rpartition(b")")
                if int(after.split()[2]) == os.getpgrp() and before.partition(b"(")[2] != _DATA_WORKER:
                    os.kill(int(entry), signal.SIGINT)


def state_of(pid: int) -> str:
    """Return the kernel's letter for what a process is doing; empty if that can't be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


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
    error_at = _relay(child, frames, mask)
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
