"""How the GPUs of one machine are shared out among the nodes (processes) on it. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.facts import NodeFacts


def with_shared_gpus(facts: Sequence[NodeFacts], wanted: str) -> tuple[NodeFacts, ...]:
    """Return the facts of one machine's nodes, each with its share of that machine's GPUs. Raises as `share_gpus`."""
    shares = share_gpus(facts[0].gpus, len(facts), wanted)
    return tuple(replace(fact, gpus=share) for fact, share in zip(facts, shares, strict=True))


def share_gpus(available: Sequence[str], nodes: int, wanted: str) -> tuple[tuple[str, ...], ...]:
    """Share one machine's GPUs out among the nodes (processes) on it: node i gets the i-th tuple.

    Args:
        wanted: `all`: as evenly as possible, where the first nodes may get one more; with fewer GPUs than nodes every
            node gets one, in turn. A count: this many for each node. Ids: these GPUs, shared like `all`.

    Raises:
        RingmasterError: the machine lacks GPUs that were asked for.
    """
    if not wanted.isdigit():
        ids = list(available) if wanted == "all" else [word for word in wanted.split(",") if word]
        _refuse_absent(ids, available)
        if 0 < len(ids) < nodes:
            return tuple((ids[node % len(ids)],) for node in range(nodes))
        ends = [-(-len(ids) * node // nodes) for node in range(nodes + 1)]
        return tuple(tuple(ids[start:end]) for start, end in pairwise(ends))
    count = int(wanted)
    if count * nodes > len(available):
        raise RingmasterError(
            f"GPUS={wanted}: {nodes} nodes x {count} = {count * nodes} GPUs, this machine has {len(available)}",
            exit_code=ExitCode.NOT_STARTED,
        )
    return tuple(tuple(available[node * count : (node + 1) * count]) for node in range(nodes))


def _refuse_absent(ids: Sequence[str], available: Sequence[str]) -> None:
    for device in ids:
        if device not in available:
            present = ", ".join(available) or "none"
            raise RingmasterError(f"GPUS: there is no GPU {device}; present: {present}", exit_code=ExitCode.NOT_STARTED)
    if len(set(ids)) != len(ids):
        raise RingmasterError(f"GPUS={','.join(ids)}: a device is listed twice; name each once")
