"""Installing on the lab when others hold apt's lock, the mirror is silent, it is killed half-way, or a job runs."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.lab import Lab
from lab.nodes.node import Node
from launcher.base.paths import ROOT
from tests.integration.lab import small_image
from tests.integration.provision import snapshot
from tests.support.provisioned import playbook, recap

pytestmark = [pytest.mark.timeout(900)]

# Small, with dependencies, and on no node.
PACKAGE = "git"
SILENT = "192.0.2.1"  # nobody's (RFC 5737)
HELD = "/run/ringmaster-test-holds-the-lock"
HOLD_LOCK = f"""
import fcntl, os, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
open("{HELD}", "w").close()
while os.path.exists("{HELD}"):
    time.sleep(0.1)
"""
# Once a package is half there. By name, in the node's own process namespace: nothing else there is called so.
KILL_APT = """
for _ in $(seq 3000); do
  dpkg --audit | grep -q . && kill -9 $(pidof apt-get dpkg dpkg-deb) && exit
  sleep 0.02
done
exit 1
"""


@pytest.fixture
def node(machines: Lab) -> Iterator[Node]:
    """A node that has none of the package before and after the test."""
    found = machines["node1"]
    before = snapshot.take(found)
    yield found
    module(machines, found, "ringmaster_undo", role="test")
    assert snapshot.differences(before, snapshot.take(found), snapshot.allowed()) == []


def start(machines: Lab, node: Node, name: str, **arguments: Any) -> "subprocess.Popen[str]":
    """Start one of our modules on a node."""
    return subprocess.Popen(
        [ROOT / ".venv/bin/ansible", "-i", machines.place.inventory, node.name, "--become", "--one-line",
         "-m", name, "-a", json.dumps(arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "ANSIBLE_LIBRARY": f"{ROOT}/playbooks/library",
             "ANSIBLE_MODULE_UTILS": f"{ROOT}/playbooks/module_utils"},
    )  # fmt: skip


def result(running: "subprocess.Popen[str]") -> dict[str, Any]:
    told = running.communicate(timeout=120)[0]
    found: dict[str, Any] = json.loads(told[told.index("{") :])
    return found


def module(machines: Lab, node: Node, name: str, **arguments: Any) -> dict[str, Any]:
    return result(start(machines, node, name, **arguments))


def start_install(machines: Lab, node: Node, **more: Any) -> "subprocess.Popen[str]":
    return start(machines, node, "ringmaster_packages", role="test", names=[PACKAGE], **more)


def install(machines: Lab, node: Node, **more: Any) -> dict[str, Any]:
    return result(start_install(machines, node, **more))


@contextmanager
def silent_mirror(node: Node) -> Iterator[None]:
    """Let the node's only mirror be one that swallows every packet."""
    rule = ("OUTPUT", "-d", SILENT, "-j", "DROP")
    node.run("sh", "-c", "mkdir /root/apt && mv /etc/apt/sources.list /etc/apt/sources.list.d /root/apt/")
    node.run("mkdir", "/etc/apt/sources.list.d")
    node.run("sh", "-c", f"echo 'deb http://{SILENT}/debian stable main' >/etc/apt/sources.list")
    node.run("iptables", "-I", *rule)
    try:
        yield
    finally:
        node.run("iptables", "-D", *rule)
        node.run("sh", "-c", "rm -r /etc/apt/sources.list /etc/apt/sources.list.d && mv /root/apt/* /etc/apt/")
        node.run("rmdir", "/root/apt")


def test_who_holds_the_lock_is_waited_for_then_named(machines: Lab, node: Node) -> None:
    node.container.exec_run(["python3", "-c", HOLD_LOCK], detach=True)
    while not node.succeeds("test", "-e", HELD):
        time.sleep(0.1)
    try:
        began = time.monotonic()
        refused = install(machines, node, lock_timeout=1)
        waiting = start_install(machines, node, lock_timeout=60)
        time.sleep(time.monotonic() - began)  # as long as the first has taken: this one is at the lock by then
        assert waiting.poll() is None, "it did not wait"
    finally:
        node.run("rm", HELD)
    assert "python3 (pid " in refused["msg"]
    assert "has held apt's lock for 1 s" in refused["msg"]
    assert result(waiting)["installed"] == [PACKAGE]


def test_a_mirror_that_is_silent_is_given_up_and_leaves_nothing(machines: Lab, node: Node) -> None:
    with silent_mirror(node):
        refused = install(machines, node)
    assert SILENT in refused["msg"]
    assert "run provision again" in refused["msg"]
    assert "\n" not in refused["msg"]
    assert not node.succeeds("dpkg", "-s", PACKAGE)


def test_killed_half_way_the_next_run_completes_it(machines: Lab, node: Node) -> None:
    running = start_install(machines, node)
    assert node.succeeds("bash", "-c", KILL_APT), "it was through before it could be killed"
    assert node.run("dpkg", "--audit") != ""
    assert "run provision again" in result(running)["msg"]
    assert install(machines, node)["changed"]
    assert node.run("dpkg", "--audit") == ""
    assert not install(machines, node)["changed"]


def test_podmans_docker_command_is_seen(machines: Lab) -> None:
    node, shim = machines["node1"], "/usr/local/bin/docker"
    node.run("sh", "-c", f"printf '#!/bin/sh\necho podman version 4.3.1\n' >{shim}; chmod 755 {shim}")
    try:
        looked = module(machines, node, "ringmaster_probe", peers={})["ansible_facts"]["ringmaster"]
    finally:
        node.run("rm", shim)
    assert (looked["engine"]["podman"], looked["engine"]["rootless"]) == ("podman version 4.3.1", [])


def test_neither_the_engine_nor_packages_are_touched_while_a_job_runs(machines: Lab) -> None:
    node = machines["node2"]
    image = small_image.provide(node)
    before = node.run("cat", "/run/docker.pid")
    container = node.run("docker", "run", "-d", "--label", "ringmaster.job=brave-otter", image, "sleep", "300").strip()
    try:
        quiet = playbook(machines, "site.yml", "--tags", "docker_engine", "--limit", "node2")
        assert recap(quiet)["node2"]["failed"] == recap(quiet)["node2"]["changed"] == 0
        node.run("touch", "/etc/docker/daemon.json")
        refused = playbook(machines, "site.yml", "--tags", "docker_engine", "--limit", "node2")
        assert recap(refused)["node2"]["failed"] == 1
        assert "job brave-otter runs there" in refused.stdout
        assert node.run("cat", "/run/docker.pid") == before
        assert "job brave-otter runs there" in install(machines, node)["msg"]
        shared = ("--tags", "shared_fs", "--limit", "node2", "-e", json.dumps({"shared_fs_enabled": True}))
        refused = playbook(machines, "site.yml", *shared)
        assert (recap(refused)["node2"]["failed"], recap(refused)["node2"]["changed"]) == (1, 0)
        assert "`make stop NAME=brave-otter`" in " ".join(refused.stdout.split())
        assert not node.succeeds("dpkg", "-s", "nfs-common", PACKAGE)
    finally:
        node.run("docker", "rm", "--force", container)
        node.run("docker", "rmi", image)
    assert recap(playbook(machines, "site.yml", "--tags", "docker_engine", "--limit", "node2"))["node2"]["changed"] == 1
    assert node.run("cat", "/run/docker.pid") != before
