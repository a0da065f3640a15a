"""Role job_folders on the lab: whose the folders are, other places, and results that a reset must not lose."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from lab.image.recipe import USER
from lab.lab import Lab
from lab.nodes.node import Node
from tests.integration.provision import snapshot
from tests.support.provisioned import playbook, recap

pytestmark = [pytest.mark.timeout(300)]

STATE = "/var/lib/ringmaster"
JOBS, DATA = f"{STATE}/jobs", f"{STATE}/data"
DISK = "/disk"  # not there on the nodes, as a disk that is yet to be used
ELSEWHERE = {"ringmaster_job_dir": f"{DISK}/ringmaster/jobs", "ringmaster_data_dir": f"{DISK}/data"}
IMAGE_USER = 10001


@pytest.fixture
def node(machines: Lab) -> Iterator[Node]:
    """A node that may lose what the role made: it gets it again."""
    found = machines["node2"]
    before = snapshot.take(found)
    yield found
    assert fine(folders(machines, "site.yml"))
    assert snapshot.differences(before, snapshot.take(found), snapshot.allowed()) == []
    assert not found.succeeds("test", "-e", DISK)


def folders(machines: Lab, name: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a playbook for this role and node2 alone."""
    given = ("--tags", "job_folders", "--limit", "node2", "-e", json.dumps(variables))
    return playbook(machines, name, *given)


def fine(done: "subprocess.CompletedProcess[str]") -> bool:
    return recap(done)["node2"]["failed"] == recap(done)["node2"]["unreachable"] == 0


def owned(node: Node, *paths: str) -> list[str]:
    return node.run("stat", "-c", "%a %u:%g", *paths).splitlines()


def test_they_are_the_ssh_users_alone(machines: Lab) -> None:
    for node in machines.nodes.values():
        modes = node.run("stat", "-c", "%a %U", STATE, JOBS, DATA).splitlines()
        assert modes == ["755 root", f"700 {USER}", f"700 {USER}"]


def test_other_places_there_and_back(machines: Lab, node: Node) -> None:
    assert fine(folders(machines, "site.yml", **ELSEWHERE))
    assert recap(folders(machines, "site.yml", **ELSEWHERE))["node2"]["changed"] == 0
    assert fine(folders(machines, "verify.yml", **ELSEWHERE))
    node.run("chmod", "700", DISK)
    refused = folders(machines, "verify.yml", **ELSEWHERE)
    assert not fine(refused)
    assert f"can't write to {DISK}/data: open" in refused.stdout
    assert fine(folders(machines, "reset.yml"))  # whatever the settings say now
    assert not node.succeeds("test", "-e", DISK)


def test_what_was_there_before_stays_as_it_was(machines: Lab, node: Node) -> None:
    mine = ELSEWHERE["ringmaster_job_dir"]
    node.run("install", "-d", "-m", "750", mine)
    assert fine(folders(machines, "site.yml", **ELSEWHERE))
    node.run("touch", f"{mine}/mine")
    assert fine(folders(machines, "reset.yml"))
    assert owned(node, mine) == ["750 0:0"]
    refused = folders(machines, "site.yml", **ELSEWHERE)
    assert "in use by others" in refused.stdout
    assert owned(node, mine) == ["750 0:0"]
    node.run("rm", "-r", f"{DISK}/ringmaster")
    node.run("rmdir", DISK)


def test_for_root_they_are_the_images_own_users(machines: Lab, node: Node) -> None:
    node.run("install", "-m", "600", f"/home/{USER}/.ssh/authorized_keys", "/root/.ssh/authorized_keys")
    try:
        assert fine(folders(machines, "site.yml", ansible_user="root"))
        assert owned(node, JOBS, DATA) == [f"700 {IMAGE_USER}:{IMAGE_USER}"] * 2
        assert fine(folders(machines, "verify.yml", ansible_user="root"))
    finally:
        node.run("systemctl", "stop", "user-0.slice")  # Ansible keeps the connection
        node.run("rm", "-rf", "/root/.ssh/authorized_keys", "/root/.ansible")


def test_results_that_nobody_has_fetched_are_not_lost(machines: Lab, node: Node) -> None:
    node.run("mkdir", f"{JOBS}/brave-otter", f"{JOBS}/.code")
    before = snapshot.take(node)
    refused = playbook(machines, "reset.yml", "--limit", "node2")
    assert recap(refused)["node2"]["failed"] == 1
    said = " ".join(refused.stdout.split())
    assert "make logs NAME=brave-otter fetches them" in said
    assert f"rm -r {JOBS}/brave-otter there" in said
    assert snapshot.differences(before, snapshot.take(node), snapshot.allowed()) == []
    node.run("touch", f"{JOBS}/brave-otter/collected")
    assert fine(folders(machines, "reset.yml"))
    assert not node.succeeds("test", "-e", JOBS)
