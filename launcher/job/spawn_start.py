"""How a script of the spawn style is started: what it is given, what it is told of it, what contradicts. Pure.

The style itself is found by `spawn_style`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.placeholders import url
from launcher.job.spawn_style import SpawnStyle

_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - recognized, not bound
_TCP = re.compile(r"tcp://(?:\[([^\]]*)\]|([^:/?]*))(?::([0-9]+))?(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the processes of a job's programs meet."""

    head: str
    """The name of the head."""
    address: str
    """Its cluster address."""
    port: int
    """A port that is free there, for the programs' own use."""
    nodes: int

    @property
    def url(self) -> str:
        """The meeting point, as torch takes it."""
        return url(self.address, self.port)


def options(style: SpawnStyle, arguments: Sequence[str], meeting: Meeting, node: str) -> tuple[str, ...]:
    """Return the options that a node's program is given before its arguments: those that the user left open.

    Args:
        node: the node's number.
    """
    if not style.rank:
        return ()
    values = {
        style.rank: node,
        style.nodes: str(meeting.nodes),
        style.url: meeting.url,
        style.address: meeting.address,
        style.port: str(meeting.port),
    }
    left = [option for option in values if option and given(style, option, arguments) is None]
    return tuple(f"{option}={values[option]}" for option in left)


def given(style: SpawnStyle, option: str, arguments: Sequence[str]) -> str | None:
    """Return the value that `arguments` give an option, the last one if there are several; None: it isn't there.

    Any of its names counts, and behind `-n` a number without a space between.
    """
    value, names = None, style.names(option)
    for number, word in enumerate(arguments):
        if word == "--":
            break
        name, equals, text = word.partition("=")
        if word in names and number + 1 < len(arguments):
            value = arguments[number + 1]
        elif equals and name in names:
            value = text
        elif word[:2] in names and word[2:].isdecimal():
            value = word[2:]
    return value


def refuse_contradictions(style: SpawnStyle, by_node: Sequence[Sequence[str]], meeting: Meeting) -> None:
    """Make sure that nodes given these arguments can meet, each under its own number.

    Args:
        by_node: each node's arguments, its placeholders filled in.

    Raises:
        RingmasterError: they can't.
    """
    if style.url:
        _refuse_wrong_url(style.url, given(style, style.url, by_node[0]), meeting)
    if style.address and meeting.nodes > 1:
        _refuse_other_host(style.address, given(style, style.address, by_node[0]), meeting, meeting.address)
    if style.rank and meeting.nodes > 1:
        ranks = [given(style, style.rank, arguments) for arguments in by_node]
        if ranks[0] is not None and len(set(ranks)) < len(ranks):
            raise RingmasterError(
                f"ARGS: {style.rank} {ranks[0]} would be every node's number, but each of {meeting.nodes} nodes needs "
                f"its own: leave {style.rank} out, and it is filled in"
            )


def _refuse_wrong_url(option: str, value: str | None, meeting: Meeting) -> None:
    if value is None or not value.startswith("tcp:"):
        return  # file:// and env:// name no host
    twice = value.startswith("tcp://tcp:")
    match = _TCP.fullmatch(value.removeprefix("tcp://") if twice else value)
    host, port = ((match[1] or match[2] or ""), match[3]) if match else ("", None)
    right = url(meeting.address, int(port or meeting.port))
    if twice or not (host and port):
        right = right if meeting.nodes > 1 or not host else url(host, int(port or meeting.port))
        raise RingmasterError(f"ARGS: {option} {value} is no tcp://host:port; give {right}, or leave it out")
    if meeting.nodes > 1:
        _refuse_other_host(option, host, meeting, right)


def _refuse_other_host(option: str, host: str | None, meeting: Meeting, right: str) -> None:
    if host is None or host in {meeting.address, meeting.head}:
        return
    if host in _HERE and meeting.address in _HERE:
        return
    what = "names each node itself" if host in _HERE else f"names {host}"
    raise RingmasterError(
        f"ARGS: {option} {what}, but all {meeting.nodes} nodes meet at the head, {meeting.head} ({meeting.address}): "
        f"give {right}, or leave it out"
    )


def refuse_unequal_gpus(style: SpawnStyle, gpus: Sequence[tuple[str, int]]) -> None:
    """Refuse nodes with different numbers of GPUs to a script that counts its processes by them.

    Process k of node i takes rank i * g + k, g being the GPUs of its own node: with unequal g, ranks would be there
    twice or missing.

    Args:
        gpus: each node's name and how many GPUs it has for the job.

    Raises:
        RingmasterError: they differ.
    """
    counts = [count for _, count in gpus]
    if style.starts and style.rank and len(set(counts)) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in gpus)
        raise RingmasterError(
            f"unequal GPU counts ({shown}): a spawn-style script numbers its processes by its own node's GPUs, so "
            f"ranks would be there twice or missing; give all nodes the same, GPUS={min(counts)}",
            exit_code=ExitCode.NOT_STARTED,
        )


def notes(style: SpawnStyle, arguments: Sequence[str], meeting: Meeting, ranks: int | None) -> Iterator[str]:
    """Yield what the user is told before the start.

    Args:
        ranks: processes per node, where the user asked for a number.
    """
    if ranks is not None and ranks > 1:
        yield (
            f"RANKS={ranks} with a spawn-style script: each of a node's {ranks} processes starts its own, "
            f"{ranks} x {ranks} if it starts {ranks}; without RANKS it is started once per node"
        )
    else:
        filled = " ".join(options(style, arguments, meeting, "<node>"))
        told = style.url and given(style, style.url, arguments)
        how = f" with {filled}" if filled else "" if told else "; its processes can meet at MASTER_ADDR:MASTER_PORT"
        yield f"spawn-style script: started once per node{how} (LAUNCH_STYLE=0 prevents it)"
    if style.alone and meeting.nodes > 1:
        yield (
            f"as far as its source tells, the script is made for one machine: the {meeting.nodes} nodes would not "
            "train together, but each for itself; NODES=1 runs it once"
        )
    elif style.alone:
        yield "as far as its source tells, the script is made for one machine, so this is a job of one node"
