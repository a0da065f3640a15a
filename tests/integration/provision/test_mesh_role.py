"""Role ssh_mesh on the lab: who reaches whom, from where, and what a node that leaves the inventory loses."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.faults.node_faults import Partition
from lab.image.recipe import USER
from lab.lab import Lab
from lab.nodes.node import Node
from launcher.base.paths import ROOT
from tests.support.provisioned import playbook, recap

pytestmark = [pytest.mark.timeout(300)]

STRICT = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=/dev/null")
HOME = f"/home/{USER}"


@pytest.fixture
def smaller(machines: Lab, tmp_path: Path) -> Iterator[Path]:
    """An inventory without node3; the nodes are put back as they were."""
    (tmp_path / machines.place.ssh_config.name).write_text(machines.place.ssh_config.read_text())
    lines = machines.place.inventory.read_text().splitlines(keepends=True)
    start = lines.index("    node3:\n")
    end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith("      "))
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("".join(lines[:start] + lines[end:]))
    yield inventory
    assert playbook(machines, "site.yml", "--tags", "ssh_mesh,comm_env").returncode == 0


def ssh(node: Node, target: str, *options: str) -> bool:
    return node.succeeds("runuser", "-u", USER, "--", "ssh", *STRICT, *options, target, "true")


def test_every_node_reaches_every_other_and_itself(machines: Lab) -> None:
    for node in machines.nodes.values():
        for other in machines.nodes.values():
            assert ssh(node, other.name), (node.name, other.name)
            assert ssh(node, other.address), (node.name, other.address)


def test_each_has_a_key_of_its_own_that_only_its_addresses_may_use(machines: Lab) -> None:
    keys = {name: node.run("cat", f"{HOME}/.ssh/id_ed25519") for name, node in machines.nodes.items()}
    assert len(set(keys.values())) == len(machines.nodes)
    for node in machines.nodes.values():
        assert node.run("stat", "-c", "%a %U", f"{HOME}/.ssh", f"{HOME}/.ssh/id_ed25519").split() == [
            "700", USER, "600", USER,
        ]  # fmt: skip
        peers = [one for one in node.run("cat", f"{HOME}/.ssh/authorized_keys").splitlines() if " ringmaster " in one]
        assert len(peers) >= len(machines.nodes)
        assert all(one.startswith(('from="', "# ringmaster ")) for one in peers)
        assert all(",restrict," in one for one in peers if one.startswith("from"))
    thief, victim = machines["node3"], machines["node2"]
    stolen = f"{HOME}/stolen"
    thief.run("install", "-m", "600", "-o", USER, "/dev/null", stolen)
    try:
        thief.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", keys["node1"], stolen)
        for node, accepted in ((thief, False), (machines["node1"], True)):
            key = stolen if node is thief else f"{HOME}/.ssh/id_ed25519"
            assert (
                ssh(node, victim.address, "-i", key, "-o", "IdentitiesOnly=yes", "-F", "none", "-p", "2222") == accepted
            )
    finally:
        thief.run("rm", "-f", stolen)


def test_a_swapped_host_key_is_refused(machines: Lab) -> None:
    node = machines["node1"]
    known = node.run("cat", "/etc/ssh/ssh_known_hosts").splitlines()
    own = next(one for one in known if one.startswith("node1,") and "ed25519" in one).split()[1:]
    swapped = f"{machines['node3'].address} {' '.join(own)}"
    node.run("sh", "-c", 'echo "$1" > /tmp/swapped', "sh", swapped)
    try:
        assert ssh(node, "node3")
        assert not ssh(node, "node3", "-o", "GlobalKnownHostsFile=/tmp/swapped")
    finally:
        node.run("rm", "/tmp/swapped")


def test_verify_names_the_two_ends_of_a_broken_pair_and_no_others(machines: Lab) -> None:
    with Partition(machines["node1"], machines["node2"]):
        done = playbook(machines, "verify.yml", "--tags", "ssh_mesh", "-e", "ssh_mesh_timeout_s=1")
    assert {name: counts["failed"] for name, counts in recap(done).items()} == {"node1": 1, "node2": 1, "node3": 0}
    named = re.findall(r"^(\S+) +failed .* from here at (\S+): ssh: connect .* timed out", done.stdout, re.MULTILINE)
    assert sorted(named) == [("node1", "node2"), ("node2", "node1")], done.stdout


def test_a_node_that_left_the_inventory_vanishes_but_not_by_a_limit(machines: Lab, smaller: Path) -> None:
    limited = playbook(machines, "site.yml", "--tags", "ssh_mesh,comm_env", "--limit", "node1,node2")
    assert all(one["changed"] == 0 for one in recap(limited).values())
    assert ssh(machines["node3"], "node1")
    left = subprocess.run(
        [ROOT / ".venv/bin/ansible-playbook", "-i", smaller, "playbooks/site.yml", "--tags", "ssh_mesh,comm_env"],
        cwd=ROOT, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert left.returncode == 0, left.stdout[-3000:]
    assert not ssh(machines["node3"], "node1")
    for name in ("node1", "node2"):
        found = machines[name].run("grep", "-rl", "-e", "node3", "/etc/ssh", "/etc/hosts", f"{HOME}/.ssh", check=False)
        assert found == ""
