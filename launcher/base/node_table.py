"""The table of all nodes: name, address, state, and the reason for the state."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from launcher.base.terminal import in_one_line

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
        """Whether the node is as it should be."""
        return self.state.split(" ")[0] in {"ok", "changed"}


def show(rows: Sequence[Row]) -> None:
    """Print the table to standard output; on a terminal, the states are coloured."""
    for line in lines(rows, coloured=coloured()):
        print(line)
    sys.stdout.flush()


def lines(rows: Sequence[Row], *, coloured: bool = False) -> list[str]:
    """Return the table's lines."""
    rows = [
        Row(
            name=in_one_line(row.name),
            address=in_one_line(row.address),
            state=in_one_line(row.state),
            why=in_one_line(row.why.strip()),
        )
        for row in rows
    ]
    names, addresses, states = (
        max((len(str(getattr(row, column))) for row in rows), default=0) for column in ("name", "address", "state")
    )
    table = []
    for row in rows:
        state = f"{row.state:{states}}"
        if coloured:
            state = f"\033[{_COLOURS.get(row.state.split(' ')[0], 31)}m{state}\033[0m"
        table.append(f"  {row.name:{names}}  {row.address:{addresses}}  {state}  {row.why}".rstrip())
    return table


def coloured() -> bool:
    """Return whether standard output is a terminal that shows colours, and the user wants them."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
