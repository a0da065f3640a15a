"""Tries whether hosts let us in, with OpenSSH as Ansible uses it."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.base.parallel import Done, run_all
from launcher.inventory.hosts import Host
from launcher.ssh import refusals
from launcher.ssh.admission import admit
from launcher.ssh.refusals import Refusal, State

CONNECT_S = 10
"""To open a connection."""
LIMIT_S = 25.0
"""For the whole try: a node may take the connection and then do nothing."""
STRICT_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no"),
    *("-o", f"ConnectTimeout={CONNECT_S}", "-o", "LogLevel=INFO", "-o", "ClearAllForwardings=yes"),
)
"""Checks host keys, asks nothing, changes nothing, and says what it meets."""
_TRY_OPTIONS = (
    *("-T", *STRICT_OPTIONS),
    # A connection kept from an earlier run would prove nothing, and hang where the node has died since.
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A host's answer to a try."""

    state: State
    reason: str = ""
    stderr: str = ""
    """Everything that ssh printed, for a closer look."""


def try_all(hosts: Sequence[Host], options: Mapping[str, Sequence[str]]) -> dict[str, Answer]:
    """Log in to every host, with strict checking and without asking anything.

    Args:
        options: ssh's options for each host, by its name, in addition to those of the try itself.
    """

    def attempt(host: Host, over: threading.Event) -> Answer:
        command = ("ssh", *_TRY_OPTIONS, *options[host.name], "--", host.address, "true")
        return _trust_password(host, judge(*run_all([command], limit_s=LIMIT_S, over=over)))

    answers = admit(hosts, attempt, lambda answer: answer.reason in refusals.PASSING)
    return {host.name: answer for host, answer in zip(hosts, answers, strict=True)}


def judge(done: Done) -> Answer:
    """Return what ssh's exit code and words mean."""
    stderr = done.err.strip()
    if done.code == 0:
        return Answer(state=State.OK, stderr=stderr)
    if done.code is None:
        refusal = Refusal(state=State.DOWN, reason=f"took the connection, then no answer for {LIMIT_S:.0f} s")
    elif done.code != 255:
        refusal = Refusal(state=State.DENIED, reason=f"logged in, but can't run a command: {_last(stderr)}")
    else:
        refusal = refusals.explain(stderr) or Refusal(state=State.DOWN, reason=_last(stderr))
    return Answer(state=refusal.state, reason=refusal.reason, stderr=stderr)


def _trust_password(host: Host, answer: Answer) -> Answer:
    """Count a host with a password as reached: it can't be tried without asking, but its host key was checked."""
    if answer.state is State.DENIED and host.ssh.has_password:
        return Answer(state=State.OK, stderr=answer.stderr)
    return answer


def _last(stderr: str) -> str:
    return stderr.splitlines()[-1].strip() if stderr else "ssh gave no reason"
