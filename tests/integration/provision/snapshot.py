"""How a node is, as far as provisioning could change it: files of /etc and the homes, packages, firewall, units."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import yaml

from lab.nodes.node import Node
from launcher.base.paths import ROOT

ALLOWED = ROOT / "docs" / "reset-leaves.yml"
_LOOK = Path(__file__).with_name("look_at_node.py").read_text()


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """A difference that stays after a reset, and why."""

    what: str
    """A pattern (fnmatch) for a key of the snapshot, such as `file /etc/*-`."""
    reason: str


def take(node: Node) -> dict[str, str]:
    """Return what there is by key (`file /etc/hosts`, `package sudo`, `unit ssh.service`, …) and how it is."""
    found: dict[str, str] = json.loads(node.run("python3", "-c", _LOOK))
    return found


def allowed() -> list[Allowed]:
    """Read the one file that lists what a reset leaves."""
    return [Allowed(what=one["what"], reason=one["reason"]) for one in yaml.safe_load(ALLOWED.read_text())]


def differences(before: dict[str, str], after: dict[str, str], exceptions: Iterable[Allowed] = ()) -> list[str]:
    """Return a line for each key that differs and isn't allowed to."""
    patterns = [one.what for one in exceptions]
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [
        f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}"
        for key in changed
        if not any(fnmatch(key, pattern) for pattern in patterns)
    ]
