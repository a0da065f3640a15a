"""Which one of the ranks' ends is the cause of a failure: node, rank, reason, last lines, hint. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.follow.tracebacks import before_late_abort, exception_line, has_late_abort

TAIL_LINES = 20

# How a rank fails when another one, or the network to it, is gone: an effect, not a cause.
_PEER_LOST = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|recvValue failed|remote process exited"
    r"|Connection refused|connection was (?:likely )?closed|NCCL communicator was aborted|Timed out waiting .*ms"
    r"|ncclRemoteError|ncclSystemError|Socket closed|failed to recv|DistNetworkError|DistStoreError"
)
_HINTS = (
    (
        r"No module named '([^']+)'",
        "install what the script needs into this environment: .venv/bin/python -m pip install {0}",
    ),
    (r"CUDA out of memory|OutOfMemoryError", "a smaller batch, accumulation or a lower precision needs less memory"),
    (r"unrecognized arguments: --local[-_]rank", "the script does not take --local-rank: LAUNCH_STYLE=0"),
    (r"required: --local[-_]rank", "the script uses the older launch style: LAUNCH_STYLE=1"),
    (r"[Aa]ddress already in use|EADDRINUSE", "another process took the port: try again, or see which one: ss -ltnp"),
    (r"No space left on device", "free some disk space: df -h"),
    (r"Duplicate GPU detected", "two NCCL ranks had one GPU: set ringmaster_backend: gloo, or ask for fewer ranks"),
)
_SIGNAL_HINTS = {
    "SIGKILL": "something killed it; the kernel does so when memory runs out: see dmesg, or use a smaller batch",
    "SIGSEGV": "a native library crashed; the stack is in the log",
    "SIGBUS": "often too little shared memory: see df -h /dev/shm",
    "SIGABRT": "a native library gave up; its message is in the log",
}
_LATE_ABORT_HINT = (
    "maybe one of Gloo's threads, while Python ended: see docs/jobs.md on scripts that abort at their end"
)


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended, or that it hadn't when everything was stopped."""

    node: str
    rank: int | None
    """None: the node's agent itself, not one of its ranks."""
    exit_code: int
    signal: str | None = None
    ended_at: float
    """Unix time."""
    error_at: float | None = None
    """Unix time of the first line of the last error that it printed."""
    stopped_by_us: bool = False
    """Whether the rank ended after the launcher had begun to stop everything."""
    lines: tuple[str, ...] = ()
    """The last lines that it printed."""
    out_of_memory: str | None = None
    """Where memory ran out, if that is why the rank was killed: `node2 (limit 512 MiB)`."""
    lost: str | None = None
    """Why its node counts as lost. How the rank ended is unknown then."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The cause, as `summary.json` has it."""

    node: str
    rank: int | None
    exit_code: int | None
    signal: str | None
    reason: str
    log_tail: tuple[str, ...]
    hint: str | None


def root_cause(ends: Sequence[RankEnd]) -> Failure | None:
    """Return the end that explains the others; None if every rank ended well.

    Ranks that did not merely lose a peer come first, then ranks that ended before they were told to. (The traceback of
    a rank that was told to end may be an old one, of an exception that it had handled.) Among those left, the first to
    show trouble is the cause: a rank prints its traceback before its sockets close and its peers fail. A rank that was
    told to end and printed no error explains nothing.
    """
    bad = [_as_meant(end) for end in ends if end.exit_code != 0 and not (end.stopped_by_us and end.error_at is None)]
    if not bad:
        return None
    end = min(
        bad, key=lambda each: (lost_a_peer(each), each.stopped_by_us, _silent(each), each.error_at or each.ended_at)
    )
    reason = describe(end)
    return Failure(
        node=end.node,
        rank=end.rank,
        exit_code=None if end.lost else end.exit_code,
        signal=end.signal,
        reason=reason,
        log_tail=end.lines[-TAIL_LINES:],
        hint=_hint(end, reason),
    )


def _as_meant(end: RankEnd) -> RankEnd:
    """Return the end without an abort that followed an error of the rank's own, because that error is the cause."""
    before = before_late_abort(end.lines) if end.signal == "SIGABRT" else None
    return end if before is None else replace(end, exit_code=1, signal=None, lines=before)


def lost_a_peer(end: RankEnd) -> bool:
    """Return whether the rank's own last exception says that another rank went away."""
    if _own_signal(end):
        return False
    return bool(_PEER_LOST.search(exception_line(end.lines) or ""))


def _silent(end: RankEnd) -> bool:
    return end.signal is None and not any(line.strip() for line in end.lines)


def _own_signal(end: RankEnd) -> str | None:
    """Return the signal that ended the rank; None if it was ours, sent while the rank failed of an error of its own."""
    return None if end.stopped_by_us else end.signal


def describe(end: RankEnd) -> str:
    """Return the cause in one line: the exception, the signal, or the exit code with the last line printed."""
    if end.lost:
        return f"the node is lost: {end.lost}"
    if end.out_of_memory:
        return f"out of memory on {end.out_of_memory}"
    if _own_signal(end):
        return f"killed by {end.signal}"
    raised = exception_line(end.lines)
    if raised and (end.exit_code == 1 or end.stopped_by_us):
        return raised  # an uncaught exception is exit code 1; with another code it was caught
    last = next((line.strip() for line in reversed(end.lines) if line.strip()), "")
    code = f"exited with code {end.exit_code}"
    return f"{code}: {last}" if last else code


def _hint(end: RankEnd, reason: str) -> str | None:
    signal = _own_signal(end)
    if end.lost:
        return "is it switched on, and is its network up? The work up to the last checkpoint is on the head"
    if end.out_of_memory:
        return "a smaller batch, fewer data workers or a node with more memory"
    if signal == "SIGABRT" and has_late_abort(end.lines):
        return _LATE_ABORT_HINT
    if signal:
        return _SIGNAL_HINTS.get(signal)
    text = "\n".join((reason, *end.lines[-TAIL_LINES:]))
    for pattern, hint in _HINTS:
        match = re.search(pattern, text)
        if match:
            return hint.format(*match.groups())
    return None
