"""`make provision`, `make verify`, `make reset`: inventory -> first contact -> playbook -> table -> exit code."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError, SignalExit
from launcher.base.node_table import Row
from launcher.base.paths import ON_NODE, ROOT
from launcher.base.values import switch
from launcher.commands.asking import SSH, SUDO, VAULT
from launcher.commands.inventory import Inventory, open_cluster
from launcher.inventory.hosts import Host
from launcher.inventory.rank_variables import NCCL_DEBUG, value_problem
from launcher.inventory.strict_ansible import STRICT
from launcher.provision import playbook
from launcher.provision.first_contact import meet, rows
from launcher.provision.playbook import Ended
from launcher.ssh.known_hosts import pinning_options
from launcher.ssh.reachability import Answer
from launcher.ssh.refusals import State

_SHARED = ("probe.py", "addresses.py")
"""What the Ansible modules share with the launcher, by symbolic links."""
_ASKABLE = (SUDO, SSH, VAULT)
_SILENT = "ringmaster_silent"
"""The callback beside the playbooks that prints nothing: `make verify` shows only its table."""


class Verb(StrEnum):
    """What is done to the nodes; the value is the name of the playbook."""

    PROVISION = "site.yml"
    VERIFY = "verify.yml"
    RESET = "reset.yml"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; an empty one is its default."""

    inventory: str = ""
    limit: str = ""
    tags: str = ""
    check: str = ""
    trust: str = ""
    keep_packages: str = ""
    nccl_debug: str = ""
    ask: str = ""


def run(verb: Verb, options: Options, *, debug: bool = False, inventory: Inventory | None = None) -> int:
    """Run the verb's playbook on every node, show the result of each, and return the exit code.

    Args:
        inventory: the one that the options name, if the command has opened it before, with its passwords.

    Raises:
        RingmasterError: the request, the inventory or the first contact is at fault; nothing was touched.
    """
    _refuse_lost_links()
    flags = _flags(options)
    trust = switch("TRUST", options.trust)
    if inventory is None:
        inventory = open_cluster(options.inventory, limit=options.limit, ask=options.ask, askable=_ASKABLE)
    answers = meet(inventory.hosts, inventory.pins, trust=trust)
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", str(inventory.path.absolute()), *flags, *_narrowed(options, answers)),
        *(["-vvv"] if debug else []),
        str(ROOT / "playbooks" / verb),
    ]
    silent = verb is Verb.VERIFY and not debug
    ended = playbook.run(command, environment(os.environ, inventory.pins, silent=silent), inventory.passwords)
    for signum in (signal.SIGINT, signal.SIGTERM):  # the rest takes milliseconds, and must be shown
        signal.signal(signum, signal.SIG_IGN)
    return _closed(verb, inventory.hosts, answers, ended)


def _refuse_lost_links() -> None:
    """Refuse a copy of this checkout without its symbolic links: Ansible's own words for that name no cause.

    Raises:
        RingmasterError: what the modules share with the launcher isn't the launcher's.
    """
    for name in _SHARED:
        link = ROOT / "playbooks" / "module_utils" / "ringmaster" / "core" / name
        if not link.exists() or link.read_bytes() != (ON_NODE / name).read_bytes():
            raise RingmasterError(
                f"{link.relative_to(ROOT)} is a symbolic link in git, and got lost in this copy: clone with git, or "
                "copy with what keeps links (rsync -a, tar)",
                exit_code=ExitCode.NOT_STARTED,
            )


def _flags(options: Options) -> list[str]:
    """Return Ansible's flags for the options; extra variables go as JSON, so that no value is taken for syntax."""
    if options.nccl_debug and (problem := value_problem(NCCL_DEBUG, options.nccl_debug)):
        raise RingmasterError(problem)
    _refuse_unknown_tags(options.tags)
    extra: dict[str, Any] = {}
    if switch("KEEP_PACKAGES", options.keep_packages):
        extra["reset_keep_packages"] = True
    if options.nccl_debug:
        extra["comm_env_nccl_debug"] = options.nccl_debug
    return [
        *(["--check", "--diff"] if switch("CHECK", options.check) else []),
        *([f"--tags={options.tags}"] if options.tags else []),
        *(["-e", json.dumps(extra)] if extra else []),
    ]


def _refuse_unknown_tags(tags: str) -> None:
    """Refuse a tag that is no role: Ansible runs nothing for it and succeeds, so `make verify` would prove nothing.

    Raises:
        RingmasterError: there is such a tag.
    """
    roles = sorted(path.name for path in (ROOT / "playbooks" / "roles").iterdir() if path.is_dir())
    for tag in filter(None, (tag.strip() for tag in tags.split(","))):
        if tag not in roles:
            raise RingmasterError(f"TAGS={tags}: there is no role '{tag}'; there are {', '.join(roles)}")


def _narrowed(options: Options, answers: Mapping[str, Answer]) -> list[str]:
    """Return Ansible's limit: the user's own; where a node is down, the names of the others.

    An earlier run may have left a connection open to a node that has died since, which would hold Ansible up for
    minutes. Roles still see every node in `groups['nodes']`.
    """
    up = [name for name, answer in answers.items() if answer.state is not State.DOWN]
    if len(up) < len(answers):
        return [f"--limit={','.join(up)}"]
    return [f"--limit={options.limit}"] if options.limit else []


def environment(ours: Mapping[str, str], pins: Path, *, silent: bool) -> dict[str, str]:
    """Return ansible-playbook's environment: our own, with a strict inventory and strict host keys."""
    strict = {**ours, **STRICT, "ANSIBLE_HOST_KEY_CHECKING": "1"}
    # inventory/group_vars/nodes.yml sets these too, but doesn't reach an inventory in another folder.
    for program in ("SSH", "SFTP", "SCP"):
        name = f"ANSIBLE_{program}_EXTRA_ARGS"
        strict[name] = f"{pinning_options(pins)} {ours.get(name, '')}".strip()
    if node_table.coloured():
        strict["ANSIBLE_FORCE_COLOR"] = "1"
    if silent:
        strict["ANSIBLE_STDOUT_CALLBACK"] = _SILENT
    return strict


def _closed(verb: Verb, hosts: Sequence[Host], answers: Mapping[str, Answer], ended: Ended) -> int:
    """Show the table and choose the exit code."""
    result: Mapping[str, Any] = json.loads(ended.result) if ended.result else {}
    if ended.signal is not None:
        advice = "run it again to go on" if ended.began and verb is not Verb.VERIFY else "nothing was changed"
        print(f"ringmaster: stopped; {advice}", flush=True)
        return SignalExit(ended.signal)
    table = final_rows(hosts, answers, result.get("nodes"))
    if verb is Verb.VERIFY or ended.code != 0 or not all(row.fine for row in table):
        node_table.show(table)
    return verdict(verb, table, ended, refused=bool(result.get("refused")))


def final_rows(hosts: Sequence[Host], answers: Mapping[str, Answer], nodes: Mapping[str, Any] | None) -> list[Row]:
    """Return each node's line: from the playbook, or from the first contact where the playbook didn't get to a node.

    Args:
        nodes: the callback plugin's lines; None: the playbook did not finish.
    """
    missing = "the playbook did not finish" if nodes is None else "no task applied to it; see TAGS"
    table = []
    for host, first in zip(hosts, rows(hosts, answers), strict=True):
        result = (nodes or {}).get(host.name)
        if first.state != State.OK:
            table.append(first)
        elif result:
            count = f" {result['changed']}" if result["state"] == "changed" else ""
            table.append(Row(name=host.name, address=host.address, state=result["state"] + count, why=result["why"]))
        else:
            table.append(Row(name=host.name, address=host.address, state="not done", why=missing))
    return table


def verdict(verb: Verb, table: Sequence[Row], ended: Ended, *, refused: bool) -> ExitCode:
    """Return the exit code that the table means."""
    if ended.code == 0 and all(row.fine for row in table):
        return ExitCode.SUCCEEDED
    unreached = all(row.state in {State.DOWN, "unreachable"} for row in table)
    if verb is Verb.VERIFY or refused or unreached or not ended.began:
        return ExitCode.NOT_STARTED
    return ExitCode.PARTLY
