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
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.base.paths import ROOT
from launcher.commands.inventory import inventory_path, pinned_file, refuse_processes
from launcher.commands.options import switch
from launcher.inventory import hosts as inventory
from launcher.inventory.hosts import STRICT, Host
from launcher.provision import playbook
from launcher.provision.first_contact import meet, rows
from launcher.provision.playbook import Ended
from launcher.ssh.known_hosts import pinning_options
from launcher.ssh.reachability import Answer
from launcher.ssh.refusals import State

_NCCL_LEVELS = ("VERSION", "WARN", "INFO", "TRACE", "ABORT")
_SILENT = "community.general.null"
"""A way of Ansible's to print nothing but errors: `make verify` shows its table alone."""


class Verb(StrEnum):
    """What is done to the nodes; the value is the playbook's name."""

    PROVISION = "site.yml"
    VERIFY = "verify.yml"
    RESET = "reset.yml"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; empty is the default of each."""

    inventory: str = ""
    limit: str = ""
    tags: str = ""
    check: str = ""
    trust: str = ""
    keep_packages: str = ""
    nccl_debug: str = ""


def run(verb: Verb, options: Options, *, debug: bool = False) -> int:
    """Do it on every node, show what became of each, and return the exit code.

    Raises:
        RingmasterError: the request, the inventory or the first contact is at fault; nothing was touched.
    """
    flags = _flags(options)
    trust = switch("TRUST", options.trust)
    path = inventory_path(options.inventory)
    hosts = inventory.read(path, limit=options.limit)
    refuse_processes(path, hosts)
    pins = pinned_file(path)
    answers = meet(hosts, pins, trust=trust)
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", str(path.absolute()), *flags, *_narrowed(options, answers)),
        *(["-vvv"] if debug else []),
        str(ROOT / "playbooks" / verb),
    ]
    ended = playbook.run(command, environment(os.environ, pins, silent=verb is Verb.VERIFY and not debug))
    for signum in (signal.SIGINT, signal.SIGTERM):  # what is left takes milliseconds, and must be said
        signal.signal(signum, signal.SIG_IGN)
    return _closed(verb, hosts, answers, ended)


def _flags(options: Options) -> list[str]:
    """Ansible's flags for what was asked; extra variables as JSON, so that nothing in them is read as anything else."""
    if options.nccl_debug not in {"", *_NCCL_LEVELS}:
        raise RingmasterError(f"NCCL_DEBUG={options.nccl_debug}: must be one of {', '.join(_NCCL_LEVELS)}")
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
    """Ansible runs nothing for a misspelled tag, and ends well: `make verify` would have proved nothing."""
    roles = sorted(path.name for path in (ROOT / "playbooks" / "roles").iterdir() if path.is_dir())
    for tag in filter(None, (one.strip() for one in tags.split(","))):
        if tag not in roles:
            raise RingmasterError(f"TAGS={tags}: there is no role '{tag}'; there are {', '.join(roles)}")


def _narrowed(options: Options, answers: Mapping[str, Answer]) -> list[str]:
    """Ansible's limit: the user's own; where a node is down, the names of the others.

    A connection that an earlier run kept open to a node that has died would hold Ansible up for minutes. Roles see
    every node in `groups['nodes']` all the same.
    """
    up = [name for name, answer in answers.items() if answer.state is not State.DOWN]
    if len(up) < len(answers):
        return [f"--limit={','.join(up)}"]
    return [f"--limit={options.limit}"] if options.limit else []


def environment(ours: Mapping[str, str], pins: Path, *, silent: bool) -> dict[str, str]:
    """What ansible-playbook gets: our own environment, a strict inventory, strict host keys."""
    made = {**ours, **STRICT, "ANSIBLE_HOST_KEY_CHECKING": "1"}
    # For an inventory elsewhere, which inventory/group_vars/nodes.yml does not reach.
    for program in ("SSH", "SFTP", "SCP"):
        name = f"ANSIBLE_{program}_EXTRA_ARGS"
        made[name] = f"{pinning_options(pins)} {ours.get(name, '')}".strip()
    if node_table.coloured():
        made["ANSIBLE_FORCE_COLOR"] = "1"
    if silent:
        made["ANSIBLE_STDOUT_CALLBACK"] = _SILENT
    return made


def _closed(verb: Verb, hosts: Sequence[Host], answers: Mapping[str, Answer], ended: Ended) -> int:
    """Show the table and choose the exit code."""
    result: Mapping[str, Any] = json.loads(ended.result) if ended.result else {}
    if ended.signal is not None:
        done = "run it again to go on" if ended.began and verb is not Verb.VERIFY else "nothing was changed"
        print(f"ringmaster: stopped; {done}", flush=True)
        return ExitCode.INTERRUPTED if ended.signal == signal.SIGINT else ExitCode.TERMINATED
    table = final_rows(hosts, answers, result.get("nodes"))
    if verb is Verb.VERIFY or ended.code != 0 or not all(row.fine for row in table):
        node_table.show(table)
    return verdict(verb, table, ended, refused=bool(result.get("refused")))


def final_rows(hosts: Sequence[Host], answers: Mapping[str, Answer], nodes: Mapping[str, Any] | None) -> list[Row]:
    """What became of each node: as the playbook says, or as the first contact did where the playbook didn't get.

    Args:
        nodes: the callback plugin's lines; None: the playbook did not come to its end.
    """
    missing = "the playbook did not come to its end" if nodes is None else "no task was for it; see TAGS"
    made = []
    for host, first in zip(hosts, rows(hosts, answers), strict=True):
        found = (nodes or {}).get(host.name)
        if first.state != State.OK:
            made.append(first)
        elif found:
            count = f" {found['changed']}" if found["state"] == "changed" else ""
            made.append(Row(name=host.name, address=host.address, state=found["state"] + count, why=found["why"]))
        else:
            made.append(Row(name=host.name, address=host.address, state="not done", why=missing))
    return made


def verdict(verb: Verb, table: Sequence[Row], ended: Ended, *, refused: bool) -> ExitCode:
    """The exit code for what the table says."""
    if ended.code == 0 and all(row.fine for row in table):
        return ExitCode.SUCCEEDED
    unreached = all(row.state in {State.DOWN, "unreachable"} for row in table)
    if verb is Verb.VERIFY or refused or unreached or not ended.began:
        return ExitCode.NOT_STARTED
    return ExitCode.PARTLY
