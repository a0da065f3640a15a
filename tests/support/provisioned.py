"""A provisioned lab."""

import subprocess
from dataclasses import dataclass

from lab.lab import Lab
from launcher.base.paths import ROOT


def playbook(machines: Lab, name: str, *words: str, timeout: float = 600) -> "subprocess.CompletedProcess[str]":
    """Run `ansible-playbook playbooks/<name>` on a lab, as a user would without make."""
    return subprocess.run(
        [ROOT / ".venv/bin/ansible-playbook", "-i", machines.place.inventory, f"playbooks/{name}", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def recap(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, int]]:
    """Return Ansible's counts (`changed`, `failed`, …) by node."""
    lines = done.stdout.rpartition("PLAY RECAP")[2].splitlines()
    words = [line.split(":", 1) for line in lines if " ok=" in line]
    return {
        node.strip(): {key: int(count) for key, count in (one.split("=") for one in rest.split())}
        for node, rest in words
    }


@dataclass(frozen=True, kw_only=True)
class Provisioned:
    """The lab, how its nodes were on their first day, and the first runs."""

    machines: Lab
    virgin: dict[str, dict[str, str]]
    check: "subprocess.CompletedProcess[str]"
    checked: dict[str, dict[str, str]]
    """How the nodes were after check mode."""
    first: "subprocess.CompletedProcess[str]"
    second: "subprocess.CompletedProcess[str]"
