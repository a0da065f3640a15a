"""What errors of torch, Gloo and NCCL say about other ranks: that one is gone, late, or missing. Pure.

Such an error is an effect: its cause is elsewhere. The texts that this was made for are in
`tests/unit/launcher/follow/cause/failure_texts.py`, with their sources.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Says(IntEnum):
    """What an error says about whose fault it is, from its own to another's."""

    OWN = 0
    """The rank has failed by itself."""
    MAYBE_PEER = 1
    """A connection broke: maybe to another rank, maybe to something of the rank's own."""
    PEER = 2
    """Another rank is gone, or late."""


_TIMED_OUT = re.compile(
    r"Timed out waiting .*?ms|Timed out after .*? waiting|caught collective operation timeout|Socket Timeout"
    r"|timed out after \d+ ?m?s|[Ww]ait timeout|failed to pass monitoredBarrier|reached monitoredBarrier, but"
    r"|Timed out initializing process group|store->get\(.*?\) got error|Application timeout caused pair closure"
    r"|Connect timeout|To avoid data inconsistency, we are taking the entire process down|due to watchdog hang"
    r"|[Hh]eartbeat monitor timed out|failed due to timeout|Operation timed out|Timeout at (?:NCCL|collective)"
    r"|connectFullMesh failed|Connection timed out|Rendezvous timed out|RendezvousTimeoutError",
    re.DOTALL,
)
_PEER_GONE = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|recvValue failed|remote process exit"
    r"|Connection refused|connection was (?:likely )?closed|NCCL communicator was aborted|aborted NCCL communicator"
    r"|ncclRemoteError|Socket closed|failed to recv|Socket recv failed|socketProgress|Software caused connection abort"
    r"|Socket is not connected|No route to host|DistNetworkError|DistStoreError|Read error \["
    r"|[Cc]onnection (?:was )?(?:aborted|lost)|RendezvousConnectionError|Stop_waiting response is expected"
)
_NOT_OF_PEERS = re.compile(
    r"[Aa]ddress already in use|EADDRINUSE|failed to (?:listen|bind)|[Nn]ame or service not known"
    r"|[Nn]o address associated|name resolution|[Cc]annot assign requested address|shared memory segment"
    r"|/dev/shm|No space left|Cuda failure"
    r"|CUDA error|[Oo]ut of memory|invalid usage|Duplicate GPU|no socket interface found|Permission denied"
)
_OF_WORKERS = re.compile(r"DataLoader worker")
_OF_TORCH = re.compile(r"^(?:RuntimeError|(?:torch|c10)[\w.:]*|\w*Dist\w*Error|\w*Rendezvous\w*|gloo\S*)\b")
_OF_PYTHON = re.compile(
    r"^(?:[\w.]+\.)?(?:ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|ConnectionError|BrokenPipeError"
    r"|EOFError|TimeoutError|timeout)\b"
)
_OF_TORCHS_STORE = re.compile(r"The client socket has")
_UNSPECIFIC = re.compile(
    r"ncclSystemError|unhandled system error|ncclInternalError|CUDA error: unspecified launch failure"
)
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout|taking the entire process down|due to watchdog hang"
    r"|[Hh]eartbeat monitor timed out|Exception \(either an error or timeout\) detected by watchdog"
)
_JOINING = re.compile(
    r"clients joined|initializing process group|store based barrier|ncclUniqueId|connectFullMesh|Connect timeout"
    r"|while trying to connect|[Rr]endezvous"
)
_MISSED_RANKS = re.compile(r"Ranks? ((?:\d+[, ]*)+)failed to pass monitoredBarrier")
_MISSED_ROOT = re.compile(r"(?:retrieving|retreiving) ncclUniqueId from \[(\d+)\]")
_ADDRESSES = re.compile(
    r"by peer \[([^\]]+)\]|by remote peer ([^\s<]+)<|(?:recv|send|connect)\w* (?:from|to) ([^\s<]+)<\d+>"
    r"|trying to connect to \(([^,]+), \d+\)|Connect timeout \[([^\]]+)\]|[Cc]onnect to ([^\s<]+)<\d+>"
)


@dataclass(frozen=True, kw_only=True)
class Accused:
    """Whom an error names as missing or gone."""

    ranks: frozenset[int] = frozenset()
    addresses: frozenset[str] = frozenset()


def says(message: str) -> Says:
    """Return whose fault an exception's message says that it is."""
    if _NOT_OF_PEERS.search(message) or _OF_WORKERS.search(message):
        return Says.OWN
    if _OF_PYTHON.match(message) and not _OF_TORCHS_STORE.search(message):
        return Says.MAYBE_PEER
    if not (_OF_TORCH.match(message) or _OF_TORCHS_STORE.search(message)):
        return Says.OWN
    if _TIMED_OUT.search(message) or _PEER_GONE.search(message):
        return Says.PEER
    return Says.MAYBE_PEER if _UNSPECIFIC.search(message) else Says.OWN


def says_in_chain(first: str, last: str) -> Says:
    """Return whose fault a chain of exceptions says that it is: the first one tells, for a script may reword it.

    A data worker's end is found out last: what comes first is only that its socket is closed.
    """
    return Says.OWN if _OF_WORKERS.search(last) else says(first)


def timed_out(text: str) -> bool:
    """Return whether an error about another rank is a time-out: that one may still be there."""
    return bool(_TIMED_OUT.search(text))


def says_of_abort(lines: Sequence[str], thrown: str | None) -> Says:
    """Return whose fault it is that a library aborted the process: that of others, if NCCL's watchdog did it.

    Args:
        thrown: what the C++ exception said that ended it, if one did.
    """
    words = [line for line in lines if _WATCHDOG.search(line)] if thrown is None else [thrown]
    return Says.PEER if words and says(f"c10::Error: {' '.join(words)}") is Says.PEER else Says.OWN


def while_joining(text: str) -> bool:
    """Return whether it happened while the ranks first met."""
    return bool(_JOINING.search(text))


def accused(text: str) -> Accused:
    """Return the ranks and addresses that an error names as missing or gone."""
    ranks = {int(number) for match in _MISSED_RANKS.finditer(text) for number in re.findall(r"\d+", match[1])}
    ranks |= {int(match[1]) for match in _MISSED_ROOT.finditer(text)}
    return Accused(ranks=frozenset(ranks), addresses=frozenset(_addresses(text)))


def _addresses(text: str) -> Iterator[str]:
    for match in _ADDRESSES.finditer(text):
        address = next(each for each in match.groups() if each)
        yield address.removeprefix("::ffff:")
