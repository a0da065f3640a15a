"""How a job ended: the outcome, how it is decided from what happened, and how it is read from `summary.json`. Pure."""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.base.errors import ExitCode, SignalExit
from launcher.follow.cause.failure import Failure, RankEnd, Weight, proven, weight
from launcher.follow.cause.suspects import Unended, root_cause
from launcher.follow.incidents import TOLD_TO_GO, Incident
from launcher.follow.node_state import ToldToGo
from launcher.on_node.job_folder import knows_more


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    state: str
    """`succeeded`, `failed` or `stopped`; `unknown`: nobody saw its end; `detached`: it goes on."""
    exit_code: ExitCode | SignalExit
    failure: Failure | None = None
    started: bool = True
    """False: no node's part of it has ever run."""
    incidents: tuple[Incident, ...] = ()
    """What befell its nodes."""

    @property
    def told(self) -> tuple[str, ...]:
        """The nodes that were told to go: that is why the job was stopped."""
        return tuple(each.node for each in self.incidents if each.kind == TOLD_TO_GO and each.node)


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
    unseen: str
    """Which nodes are not known to have ended well, and why, in words; empty: all are."""
    failed_first: bool = False
    """Whether a failure was seen before that signal came."""
    unended: tuple[Unended, ...] = ()
    """The ranks that were not seen to end."""
    told: tuple[ToldToGo, ...] = ()
    """The nodes that were told to go."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Of each node, by its name."""


def decide(evidence: Evidence) -> Outcome:
    """Return the outcome. What was asked for first counts: a request makes ranks fail too, but not in hindsight."""
    if evidence.start_failure:
        return Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, failure=evidence.start_failure, started=False)
    if evidence.detached_by is not None:
        return Outcome(state="detached", exit_code=SignalExit(evidence.detached_by))
    failure = root_cause(evidence.ends, evidence.unended, evidence.addresses)
    stopped = _stopped(evidence, failed=failure is not None)
    by_agents = failure is None or (failure.rank is None and failure.exit_code is not None)
    if stopped is not None or by_agents:  # another launcher may have told its ranks to end
        unsaved = _unsaved(evidence)
        if unsaved is not None:
            return replace(unsaved, incidents=stopped.incidents) if stopped else unsaved
    if stopped is not None:
        return stopped
    if failure is None and evidence.unseen:
        return _unknown(evidence.unseen)
    if failure is None:
        return Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
    return Outcome(state="failed", exit_code=_failed_code(failure, evidence), failure=failure)


def _stopped(evidence: Evidence, *, failed: bool) -> Outcome | None:
    """Return that the job was stopped, by its user or with a node, before anything failed; None if it wasn't."""
    incidents = tuple(Incident.told_to_go(each) for each in evidence.told)
    if evidence.stopped_by is not None and not (failed and evidence.failed_first):
        return Outcome(state="stopped", exit_code=SignalExit(evidence.stopped_by), incidents=incidents)
    if evidence.told and not (failed and _failed_before(evidence.ends, evidence.told)):
        return Outcome(state="stopped", exit_code=_code_of_told(evidence.told[0]), incidents=incidents)
    return None


def _unsaved(evidence: Evidence) -> Outcome | None:
    """Return the failure of a trainer that was asked to stop and could not save its last steps; None if it could."""
    code = ExitCode.CLUSTER
    said = [replace(end, stopped_by_us=False, told_at=None) for end in evidence.ends if end.rank is not None]
    failure = proven([end for end in said if end.exit_code == code and evidence.bundled])
    return Outcome(state="failed", exit_code=code, failure=failure) if failure else None


def _failed_before(ends: Sequence[RankEnd], told: Sequence[ToldToGo]) -> bool:
    """Return whether a rank had certainly failed when the first node was told to go."""
    first = min(told, key=lambda each: each.at)
    return any(
        end.trouble_at < first.at - max(end.unsure_s, first.unsure_s)
        for end in ends
        if weight(end) is not Weight.NOTHING
    )


def _unknown(reason: str) -> Outcome:
    failure = Failure(node=None, rank=None, exit_code=None, signal=None, reason=reason, log_tail=(), hint=None)
    return Outcome(state="unknown", exit_code=ExitCode.CLUSTER, failure=failure)


def _code_of_told(told: ToldToGo) -> ExitCode | SignalExit:
    """Return the code for a node that was told to go: 143 also after SIGINT, for that was no Ctrl-C of ours."""
    signum = getattr(signal, told.signal, signal.SIGTERM)
    return ExitCode.TERMINATED if signum == signal.SIGINT else SignalExit(signum)


def _failed_code(failure: Failure, evidence: Evidence) -> ExitCode:
    if failure.signal == "SIGKILL" and evidence.out_of_memory:
        return ExitCode.FAILED  # the program took the memory, whichever process the kernel then chose
    if failure.suspect or failure.node is None:
        return ExitCode.FAILED  # all that is certain is that ranks waited for each other
    if failure.rank is None:
        return ExitCode.CLUSTER  # a node's agent died, or the nodes never met
    if evidence.refused:
        return ExitCode.NOT_STARTED
    # Only the bundled trainer's codes are Ringmaster's own; a user's script may mean anything by a 3.
    own = {ExitCode.USAGE, ExitCode.NOT_STARTED, ExitCode.CLUSTER}
    if evidence.bundled and failure.exit_code in own:
        return ExitCode(failure.exit_code)
    return ExitCode.FAILED


def recorded(summary: Any) -> Outcome:
    """Return the outcome that a `summary.json` records, as unknown if it is none, or says that nobody saw the end."""
    if knows_more(summary, {"state": "unknown"}):
        with suppress(KeyError, TypeError, ValueError):
            return _outcome_of(summary)
    told = summary.get("failure") if isinstance(summary, Mapping) else None
    reason = told.get("reason") if isinstance(told, Mapping) else None
    return _unknown(str(reason or "nobody has recorded it"))


def _outcome_of(summary: Mapping[str, Any]) -> Outcome:
    told = summary["failure"]
    failure = Failure(**{**told, "log_tail": tuple(told["log_tail"])}) if told else None
    return Outcome(
        state=str(summary["state"]),
        exit_code=ExitCode(summary["exit_code"]),
        failure=failure,
        incidents=tuple(Incident(**each) for each in summary.get("incidents", ())),
    )


def seen_end(summary: Any) -> Outcome | None:
    """Return the outcome that somebody saw and recorded in this `summary.json`; None if it records none."""
    outcome = recorded(summary)
    return None if outcome.state == "unknown" else outcome
