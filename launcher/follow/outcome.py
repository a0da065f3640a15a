"""How a job ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.base.errors import ExitCode
from launcher.follow.failure import Failure


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    state: str
    """`succeeded`, `failed` or `stopped`; `detached`: it goes on."""
    exit_code: ExitCode
    failure: Failure | None = None
    started: bool = True
    """False: no node's part of it has ever run."""


def outcome_of(summary: Mapping[str, Any]) -> Outcome:
    """The outcome that a summary.json tells.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    told = summary["failure"]
    failure = Failure(**{**told, "log_tail": tuple(told["log_tail"])}) if told else None
    return Outcome(state=str(summary["state"]), exit_code=ExitCode(summary["exit_code"]), failure=failure)
