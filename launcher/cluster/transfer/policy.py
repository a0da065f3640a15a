"""What comes home of what a job writes on its nodes: the one place that decides it, by kind, path and size."""

from dataclasses import dataclass, field
from enum import StrEnum

from launcher.base.values import amount
from launcher.on_node.work_folder import MOST_FILES

FILE_BYTES, JOB_BYTES = 2 * 10**9, 10 * 10**9
"""Of what a program writes into its working folder, so much comes home: of a file, and of a job on all its nodes."""
_SMALL_BYTES = 10**6
_SETTLED_S = 2.0
_UNFINISHED = (".part", ".tmp", ".new", ".partial")
"""Ends of the names of files that are still being written; names that begin with a dot count too."""


class Kind(StrEnum):
    """What a file is of a job's results."""

    RUN = "run"
    """In RUN_DIR."""
    CHECKPOINT = "checkpoint"
    """In CHECKPOINT_DIR."""
    WORK = "work"
    """New or changed in the program's working folder."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A file that a node has."""

    kind: Kind
    node: str
    path: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of the working folder comes home, in bytes."""

    file: int = FILE_BYTES
    job: int = JOB_BYTES
    """On all nodes together."""

    @classmethod
    def of(cls, limit: int | None) -> "Limits":
        """Return the limits that `WORK_LIMIT` asks for; None: it was not given."""
        return cls() if limit is None else cls(file=limit, job=limit)


@dataclass(kw_only=True)
class Policy:
    """Decides for one job. What is home counts, also once the program has removed it: the disk here has it still."""

    limits: Limits
    _home: dict[tuple[str, str], int] = field(default_factory=dict)
    _bytes: int = 0

    def stays(self, offer: Offer) -> str:
        """Return why a file doesn't come home; empty: it comes."""
        if offer.kind is not Kind.WORK:
            return ""
        if self.limits.job == 0:
            return "WORK_LIMIT=0"
        if offer.size > self.limits.file:
            return f"{amount(offer.size)}; the limit is {amount(self.limits.file)} a file"
        known = self._home.get((offer.node, offer.path))
        if self._bytes - (known or 0) + offer.size > self.limits.job:
            return f"{amount(offer.size)}; the limit is {amount(self.limits.job)} a job"
        return f"the limit is {MOST_FILES:,} files" if known is None and len(self._home) >= MOST_FILES else ""

    def came(self, offer: Offer) -> None:
        """Note that a file is home."""
        key = (offer.node, offer.path)
        self._bytes += offer.size - self._home.get(key, 0)
        self._home[key] = offer.size


def unfinished(name: str) -> bool:
    """Return whether a file of this name is probably being written, as long as its program runs."""
    return name.startswith(".") or name.endswith(_UNFINISHED)


def restless(name: str, size: int, age_s: float) -> bool:
    """Return whether a file of the working folder has to wait, as it would be torn, or had to come again and again.

    Args:
        age_s: seconds since it was changed, by its node's clock.
    """
    return unfinished(name) or (size > _SMALL_BYTES and age_s < _SETTLED_S)
