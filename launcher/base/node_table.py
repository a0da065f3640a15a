"""The table of all nodes: name, address, state, and why."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_COLOURS = {"ok": 32, "changed": 33, "down": 31, "denied": 31, "failed": 31, "refused": 31, "unreachable": 31}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One node's line."""

    name: str
    address: str
    state: str
    why: str = ""

    @property
    def fine(self) -> bool:
        return self.state.split(" ")[0] in {"ok", "changed"}


def show(rows: Sequence[Row]) -> None:
    """Print the table to standard output, the states in colour on a terminal."""
    for line in lines(rows, coloured=coloured()):
        print(line)
    sys.stdout.flush()


def lines(rows: Sequence[Row], *, coloured: bool = False) -> list[str]:
    """The table's lines."""
    names, addresses, states = (
        max((len(str(getattr(row, column))) for row in rows), default=0) for column in ("name", "address", "state")
    )
    made = []
    for row in rows:
        state = f"{row.state:{states}}"
        if coloured:
            state = f"\033[{_COLOURS.get(row.state.split(' ')[0], 31)}m{state}\033[0m"
        made.append(f"  {row.name:{names}}  {row.address:{addresses}}  {state}  {row.why}".rstrip())
    return made


def coloured() -> bool:
    """Whether what we print is read by a person at a terminal that shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
