"""How a job ended: the outcome, how it is decided from what happened, and how it is read from `summary.json`. Pure."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.base.errors import ExitCode
from launcher.follow.failure import Failure, RankEnd, root_cause


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    state: str
    """`succeeded`, `failed` or `stopped`; `detached`: it goes on."""
    exit_code: ExitCode
    failure: Failure | None = None
    started: bool = True
    """False: no node's part of it has ever run."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a job once it is no longer followed."""

    start_failure: Failure | None
    """Why no node was started."""
    detached_by: int | None
    """The signal after which the job was left to itself."""
    stopped_by: int | None
    """The first signal that asked for the job's end."""
    ends: tuple[RankEnd, ...]
    """How the ranks ended, and agents whose end the ranks' don't explain."""
    out_of_memory: bool
    """Whether a node says that it ran out of memory."""
    refused: bool
    """Whether a rank's parent found that its program must not start."""
    bundled: bool
    """Whether the job ran the bundled trainer."""


def decide(evidence: Evidence) -> Outcome:
    """Return the outcome: the user's request counts before any failure, for it makes ranks fail too."""
    if evidence.start_failure:
        return Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, failure=evidence.start_failure, started=False)
    if evidence.detached_by is not None:
        return Outcome(state="detached", exit_code=_code_of(evidence.detached_by))
    if evidence.stopped_by is not None:
        return Outcome(state="stopped", exit_code=_code_of(evidence.stopped_by))
    failure = root_cause(evidence.ends)
    if failure is None:
        return Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
    return Outcome(state="failed", exit_code=_failed_code(failure, evidence), failure=failure)


def _code_of(signum: int) -> ExitCode:
    return ExitCode.INTERRUPTED if signum == signal.SIGINT else ExitCode.TERMINATED


def _failed_code(failure: Failure, evidence: Evidence) -> ExitCode:
    if failure.signal == "SIGKILL" and evidence.out_of_memory:
        return ExitCode.FAILED  # the program took the memory, whichever process the kernel then chose
    if failure.rank is None:
        return ExitCode.CLUSTER  # a node's agent died, or the nodes never met
    if evidence.refused:
        return ExitCode.NOT_STARTED
    # Only the bundled trainer's codes are Ringmaster's own; a user's script may mean anything by a 3.
    own = {ExitCode.USAGE, ExitCode.NOT_STARTED, ExitCode.CLUSTER}
    if evidence.bundled and failure.exit_code in own:
        return ExitCode(failure.exit_code)
    return ExitCode.FAILED


def outcome_of(summary: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a `summary.json` records.

    Raises:
        KeyError, TypeError, ValueError: it is no summary.
    """
    recorded = summary["failure"]
    failure = Failure(**{**recorded, "log_tail": tuple(recorded["log_tail"])}) if recorded else None
    return Outcome(state=str(summary["state"]), exit_code=ExitCode(summary["exit_code"]), failure=failure)
