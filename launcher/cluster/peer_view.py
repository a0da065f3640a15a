"""Whether a node that we don't reach is lost: decided from what its peers see of it now, and saw while it was well."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from launcher.on_node import knock

_SOURCE = Path(knock.__file__).read_text(encoding="utf-8")
_NOBODYS = 1
"""A port where nobody listens: a machine that is well refuses the connection, unless its firewall drops it."""
_SAME_S = 2.0
"""What a peer heard less than this after our own line fell silent may be from before it."""


class Verdict(StrEnum):
    """What a peer can say of a node."""

    RUNS = "runs"
    SILENT = "silent"
    """What had answered there does so no more."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class PeerView:
    """What one node sees of another over the cluster's network."""

    ports: Mapping[int, str]
    """How each port answers, in the words of `on_node/knock.py`."""
    heard_s: float | None = None
    """How long ago data last came over an open connection with it, SSH apart; None: there is no such connection."""
    stuck: bool = False
    """Whether data on such a connection is sent again and again without an answer."""


def question(address: str, ssh_port: int) -> list[str]:
    """Return the program with which a peer looks at the node at `address`.

    It knocks where a stranger disturbs nobody: at sshd, at our port and at the usual one, which may differ inside.
    """
    ports = (*dict.fromkeys((ssh_port, 22)), _NOBODYS)
    return ["python3", "-IS", "-c", _SOURCE, address, *map(str, ports)]


def parse(answer: str) -> PeerView | None:
    """Read what the program printed; None if it is no answer. A login may print something before it."""
    try:
        fields = json.loads((answer.strip().splitlines() or [""])[-1])
        ports = {int(port): str(how) for port, how in fields["ports"].items()}
        return PeerView(ports=ports, heard_s=fields["heard_s"], stuck=bool(fields["stuck"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def judge(now: PeerView, before: PeerView | None, *, silent_s: float) -> Verdict:
    """Return what a peer's view says of a node that has been silent to us for `silent_s`.

    Args:
        before: what a peer saw while the node was well; None: nobody has looked.
    """
    well = before.ports if before else {}
    answers = set(now.ports.values())
    if now.heard_s is not None and now.heard_s < silent_s - _SAME_S:
        return Verdict.RUNS
    if answers & {"greets", "closes"}:
        return Verdict.RUNS
    if any(how == "silent" and well.get(port) == "greets" for port, how in now.ports.items()):
        return Verdict.SILENT  # a frozen machine still takes connections, but its sshd says nothing
    if answers & {"refuses", "silent"}:
        return Verdict.RUNS if "refuses" in answers else Verdict.UNKNOWN
    answered = any(how != "nothing" for how in well.values())
    return Verdict.SILENT if answered or now.stuck else Verdict.UNKNOWN


def sum_up(verdicts: Mapping[str, Verdict]) -> tuple[Verdict, Sequence[str]]:
    """Return what several peers say together, and who says so: one that hears the node outweighs the others."""
    for verdict in (Verdict.RUNS, Verdict.SILENT):
        names = [name for name, each in verdicts.items() if each is verdict]
        if names:
            return verdict, names
    return Verdict.UNKNOWN, list(verdicts)
