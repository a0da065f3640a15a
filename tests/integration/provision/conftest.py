"""Three bare, unequal nodes that the provisioning tests share, and what the first runs on them did."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from launcher.program import ROOT
from tests.integration.conftest import kept
from tests.integration.provision import snapshot
from tests.lab import lab, spec
from tests.lab.lab import Lab
from tests.lab.place import Place

WANTED = spec.lab(nodes=3, unequal=True)
OWN = Place(name="bare")


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


@pytest.fixture(scope="session")
def bare_lab(an_engine: None) -> Iterator[Lab]:
    """Three nodes without anything, unequal in the ways the lab offers. Leave them as you found them."""
    try:
        yield lab.up(WANTED, OWN, renew=() if kept() else [node.name for node in WANTED.nodes])
    finally:
        if not kept():
            lab.down(OWN)


@pytest.fixture(scope="session")
def provisioned(bare_lab: Lab) -> Provisioned:
    """The lab after check mode, a first run and a second one; whether these did well is a test's business."""
    virgin = {name: snapshot.take(node) for name, node in bare_lab.nodes.items()}
    check = playbook(bare_lab, "site.yml", "--check", "--diff")
    checked = {name: snapshot.take(node) for name, node in bare_lab.nodes.items()}
    return Provisioned(
        machines=bare_lab,
        virgin=virgin,
        check=check,
        checked=checked,
        first=playbook(bare_lab, "site.yml"),
        second=playbook(bare_lab, "site.yml"),
    )


@pytest.fixture
def machines(provisioned: Provisioned) -> Lab:
    """The lab, provisioned."""
    return provisioned.machines
