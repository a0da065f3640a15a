"""How the lines of a rank are shown: behind its label, and on a terminal without what would move the cursor."""

import re
from collections.abc import Sequence

_PLAIN = re.compile(rb"[\t\n\x20-\x7e]*")
"""What every terminal shows as it is."""
_SEQUENCES = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # moves the cursor, erases, changes modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_RESET = "\x1b[0m"


def as_printed(label: str, lines: Sequence[bytes]) -> bytes:
    """Return the lines as they are, byte for byte, each behind `label`."""
    head = label.encode() + b" | "
    return head + (b"\n" + head).join(lines) + b"\n"


def for_a_terminal(label: str, lines: Sequence[bytes], colour: int | None) -> bytes:
    """Return the lines with their own colours, but without what would move the cursor, each behind `label`.

    Args:
        colour: the label's, as terminals count them; None: no colours at all, not even the lines' own.
    """
    if not _PLAIN.fullmatch(b"\n".join(lines)):
        lines = [harmless(line, colours=colour is not None) for line in lines]
    head = f"{label} | ".encode() if colour is None else f"\x1b[{colour}m{label} | {_RESET}".encode()
    return head + (b"\n" + head).join(lines) + b"\n"


def harmless(line: bytes, *, colours: bool) -> bytes:
    """Return a line without control characters, except for its colours."""
    text = line.decode(errors="replace")
    kept = _SEQUENCES.sub(lambda found: (found["colour"] or "") if colours else "", text)
    return (kept + _RESET if "\x1b" in kept else kept).encode()
