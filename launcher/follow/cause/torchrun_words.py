"""What torchrun's agent says of itself and of its node's ranks. Pure."""

import re
import signal
from collections.abc import Iterable

_DEATH_SIGNAL = re.compile(
    r"Received (?:Signals\.)?(?P<number>\w+) death signal|SignalException: Process \d+ got signal: (?P<got>\w+)"
)
_CLOSES = re.compile(r"Sending process (\d+) closing signal")
_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: \d+ \(pid: (\d+)\)")


def death_signal(line: str) -> str | None:
    """Return the name of the signal that told the agent to end, if the line says that one did."""
    match = _DEATH_SIGNAL.search(line)
    if match is None:
        return None
    word = (match["number"] or match["got"]).removeprefix("Signals.")
    return signal.Signals(int(word)).name if word.isdigit() and int(word) in set(signal.Signals) else word


def closed(lines: Iterable[str]) -> set[int]:
    """Return the process ids of the ranks' parents that the agent itself has told to end."""
    return {int(match[1]) for line in lines for match in _CLOSES.finditer(line)}


def failed(lines: Iterable[str]) -> dict[int, int]:
    """Return the exit code (negative: signal) of each rank's parent that the agent saw fail, by process id."""
    return {int(match[2]): int(match[1]) for line in lines for match in _FAILED.finditer(line)}
