"""First contact: tries every host once; shows unknown host keys, asks about them once, and pins them."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.base.terminal import visible
from launcher.inventory.hosts import Host
from launcher.ssh import known_hosts, refusals
from launcher.ssh.known_hosts import Key, Route, pinning_options
from launcher.ssh.reachability import Answer, try_all
from launcher.ssh.refusals import State

_REFUSING = frozenset({State.DENIED, State.CHANGED, State.UNKNOWN})


def meet(hosts: Sequence[Host], pins: Path, *, trust: bool) -> dict[str, Answer]:
    """Return every host's answer, `ok` or `down`; hosts that Ansible reaches without ssh are `ok`.

    Raises:
        RingmasterError: a host refuses us or shows another key than the pinned one, keys are unknown and nobody
            accepts them, or no host answers. The table with the reasons was shown; nothing was touched.
    """
    by_ssh = [host for host in hosts if host.ssh.over_ssh]
    answers = {host.name: Answer(state=State.OK) for host in hosts}
    options = {host.name: host.ssh.options(pinning_options(pins)) for host in by_ssh}
    answers |= try_all(by_ssh, options)
    unverified = [host for host in by_ssh if answers[host.name].state in {State.UNKNOWN, State.CHANGED}]
    if unverified:
        routes = known_hosts.routes(unverified, options, pins)
        unknown = [host for host in unverified if answers[host.name].state is State.UNKNOWN]
        answers |= _introduce(unknown, routes, options, pins, trust=trust)
        _explain_changed({host.name: routes[host.name] for host in unverified}, answers)
    refusing = [host.name for host in hosts if answers[host.name].state in _REFUSING]
    down = [host.name for host in hosts if answers[host.name].state is State.DOWN]
    if refusing or len(down) == len(hosts):
        node_table.show(rows(hosts, answers))
        who = f"{', '.join(refusing)}: " if refusing else "no node "
        how = f"fix {'this' if len(refusing) == 1 else 'these'} first" if refusing else "answers"
        raise RingmasterError(f"{who}{how} (see the table); nothing was touched", exit_code=ExitCode.NOT_STARTED)
    return answers


def rows(hosts: Sequence[Host], answers: Mapping[str, Answer]) -> list[Row]:
    """Return the table's row for each host's answer."""
    return [
        Row(name=host.name, address=host.address, state=answers[host.name].state, why=answers[host.name].reason)
        for host in hosts
    ]


def _introduce(
    hosts: Sequence[Host],
    routes: Mapping[str, Route],
    options: Mapping[str, Sequence[str]],
    pins: Path,
    *,
    trust: bool,
) -> dict[str, Answer]:
    """Pin the keys of hosts that ssh doesn't know yet, and try these hosts again; return their answers."""
    answers: dict[str, Answer] = {}
    ask: dict[str, Route] = {}
    for host in hosts:
        route = routes[host.name]
        if not route.direct:
            print(f"ringmaster: {host.name} can't be asked for its key from here; ssh shows it, asks, and pins it:")
            print(f"    {_by_hand(host, pins)}", flush=True)
            reason = "its key, or its jump host's, is not known: see the command above"
            answers[host.name] = Answer(state=State.UNKNOWN, reason=reason)
        elif not route.uses_pins:
            raise RingmasterError(
                f"{host.name}: its ssh options keep {pins} from being read; move what is in "
                "ansible_ssh_extra_args to ansible_ssh_common_args, and set no GlobalKnownHostsFile there"
            )
        elif entries := known_hosts.known(route):
            answers[host.name] = Answer(state=State.CHANGED, reason=refusals.KEY_OF_ANOTHER_KIND)
            if not route.takes_ed25519 and all("ed25519" in key.kind for _, _, key in entries):
                forget = shlex.join(("ssh-keygen", "-f", str(entries[0][0]), "-R", route.name))
                reason = f"{refusals.KIND_NOT_TAKEN}: {forget}, then make provision shows another"
                answers[host.name] = Answer(state=State.UNKNOWN, reason=reason)
        else:
            ask[host.name] = route
    shown = known_hosts.scan(ask)
    for name in [name for name in ask if not shown[name]]:
        answers[name] = Answer(state=State.DOWN, reason=f"showed no host key within {known_hosts.SCAN_S} s")
    new = {name: keys for name, keys in shown.items() if keys}
    if new:
        _accept(new, ask, pins, trust=trust)
        answers |= try_all([host for host in hosts if host.name in new], options)
    return answers


def _accept(new: Mapping[str, Sequence[Key]], routes: Mapping[str, Route], pins: Path, *, trust: bool) -> None:
    """Show the keys, ask once, and pin them.

    Raises:
        RingmasterError: they were not accepted, or nobody can be asked.
    """
    keys = [(name, key) for name, of_node in new.items() for key in of_node]
    print("ringmaster: nodes seen for the first time, and the fingerprints of the host keys they show:")
    width = max(len(name) for name in new)
    for name, key in keys:
        print(f"  {name:{width}}  {routes[name].name:21}  {key.kind.removeprefix('ssh-'):19}  {key.fingerprint}")
    shown = os.path.relpath(pins)
    if not trust and not sys.stdin.isatty():
        raise RingmasterError(
            "these host keys are not known, and nobody can be asked: compare them, then use TRUST=1 or a terminal",
            exit_code=ExitCode.NOT_STARTED,
        )
    if not trust and not _agreed(f"Are these your machines? Their keys are then pinned in {shown}. [y/N] "):
        raise RingmasterError("the host keys were not accepted; nothing was touched", exit_code=ExitCode.NOT_STARTED)
    known_hosts.pin(pins, [(routes[name].name, key) for name, key in keys])
    print(f"ringmaster: {len(keys)} host key(s) of {len(new)} node(s) pinned in {shown}", flush=True)


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        print()
        return False


def _by_hand(host: Host, pins: Path) -> str:
    """Return the command for OpenSSH itself to show the key, ask, and pin it."""
    own = ("-o", f'UserKnownHostsFile="{pins}"', "-o", "HashKnownHosts=no", "-o", "StrictHostKeyChecking=ask")
    options = replace(host.ssh, extra_args=None).options("")
    return shlex.join(("ssh", *own, *options, host.address, "true"))


def _explain_changed(routes: Mapping[str, Route], answers: Mapping[str, Answer]) -> None:
    """Show what a changed key may mean, the old and the new one, and how to accept the new one on purpose."""
    for name, route in routes.items():
        answer = answers[name]
        if answer.state is not State.CHANGED:
            continue
        pinned = known_hosts.known(route)
        offered = re.search(r"SHA256:\S+", answer.stderr)
        new = offered[0].rstrip(".") if offered else _listed(known_hosts.scan({name: route})[name])
        print(f"ringmaster: {name} ({route.name}): {visible(answer.reason)}")
        for file, line, key in pinned:
            print(f"  pinned   {key.fingerprint}  {key.kind}  {file}:{line}")
        print(f"  shown    {visible(new)}")
        print("  Either the machine was installed anew, or someone stands between you and it. Compare with its console")
        print("  (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub); only if it is the same, forget the old one:")
        for file in dict.fromkeys(file for file, _, _ in pinned):
            print(f"    {shlex.join(('ssh-keygen', '-f', str(file), '-R', route.name))}")
        sys.stdout.flush()


def _listed(keys: Sequence[Key]) -> str:
    return ", ".join(f"{key.fingerprint} ({key.kind})" for key in keys) or "(it shows none)"
