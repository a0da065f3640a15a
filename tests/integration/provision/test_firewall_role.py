"""The firewall on real nodes: who gets in, who doesn't, and that the operator always does."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.faults import node_faults
from lab.host import engine
from lab.lab import Lab
from lab.nodes import network
from lab.nodes.node import Node
from launcher.base.paths import ROOT
from tests.support.provisioned import playbook, recap

# Its fixtures run playbooks, too.
pytestmark = [pytest.mark.timeout(900)]

ONLY = ("--tags", "firewall")
CLUSTER_ONLY = (*ONLY, "-e", "ringmaster_firewall=cluster_only")
PORT = 34567
STATE = "/var/lib/ringmaster"
MANIFEST = f"{STATE}/manifest.json"
FILES = ("/etc/default/ufw", "/etc/ufw/ufw.conf", "/etc/ufw/user.rules", "/etc/ufw/user6.rules")
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
LISTEN = f"import socket, time; one = socket.create_server(('', {PORT})); time.sleep(600)"


def ufw(node: Node) -> str:
    """ufw's files byte for byte, with their modes, and whether it runs."""
    return node.run("sh", "-c", f"stat -c '%n %a %u %g' {' '.join(FILES)}; cat {' '.join(FILES)}; ufw status | head -1")


def reaches(node: Node, address: str, port: int) -> bool:
    return node.succeeds("python3", "-c", CONNECT, address, str(port))


@contextmanager
def listening(node: Node) -> Iterator[None]:
    """Somebody listens at the port of a node, on all its addresses."""
    node.container.exec_run(["python3", "-c", LISTEN], detach=True)
    while not node.run("ss", "-Hltn", f"sport = :{PORT}"):
        time.sleep(0.1)
    try:
        yield
    finally:
        node.run("pkill", "-f", f"create_server.*{PORT}")


def stranger_reaches(machines: Lab, node: Node, port: int) -> bool:
    """Whether a container that no inventory knows gets in, from the nodes' own network."""
    client = engine.needed()
    main = network.find(client, machines.place, network.MAIN)
    assert main is not None
    words = ["python3", "-c", CONNECT, node.address, str(port)]
    stranger = client.containers.run(node.container.image, words, entrypoint="", network=main.name, detach=True)
    try:
        return int(stranger.wait(timeout=30)["StatusCode"]) == 0
    finally:
        stranger.remove(force=True)


@pytest.fixture(scope="module")
def closed(bare_lab: Lab) -> Iterator[Lab]:
    """The lab in cluster_only mode; then as it was."""
    provisioned = bare_lab["node1"].succeeds("grep", "-q", '"role": "firewall"', MANIFEST)
    before = {name: ufw(node) for name, node in bare_lab.nodes.items()}
    try:
        done = playbook(bare_lab, "site.yml", *CLUSTER_ONLY)
        assert done.returncode == 0, done.stdout
        yield bare_lab
    finally:
        back = playbook(bare_lab, "site.yml" if provisioned else "reset.yml", *ONLY)
    assert back.returncode == 0, back.stdout
    assert {name: ufw(node) for name, node in bare_lab.nodes.items()} == before


def test_peers_reach_every_port_and_strangers_only_ssh(closed: Lab) -> None:
    node = closed["node1"]
    with listening(node):
        assert reaches(closed["node2"], node.address, PORT)
        assert reaches(closed["node3"], node.address, PORT)
        assert not stranger_reaches(closed, node, PORT)
    assert stranger_reaches(closed, node, node.spec.ssh_port)


def test_again_changes_nothing_and_the_proof_holds(closed: Lab) -> None:
    again = playbook(closed, "site.yml", *CLUSTER_ONLY)
    assert {counts["changed"] for counts in recap(again).values()} == {0}, again.stdout
    assert playbook(closed, "verify.yml", *CLUSTER_ONLY).returncode == 0
    closed["node1"].run("iptables", "-P", "INPUT", "ACCEPT")
    try:
        open_again = playbook(closed, "verify.yml", *CLUSTER_ONLY, "--limit", "node1")
    finally:
        closed["node1"].run("iptables", "-P", "INPUT", "DROP")
    assert open_again.returncode != 0
    assert "ufw reload" in open_again.stdout


def test_after_a_reboot_the_operator_comes_in_and_strangers_do_not(closed: Lab) -> None:
    node = closed["node1"]
    with node_faults.Reboot(node):
        pass
    assert closed.ssh("node1", "true").returncode == 0
    with listening(node):
        assert reaches(closed["node2"], node.address, PORT)
        assert not stranger_reaches(closed, node, PORT)


@pytest.fixture
def trap(bare_lab: Lab) -> Iterator[Node]:
    """node1 with ufw off, and a dormant rule of its user's that would keep the operator out."""
    node = bare_lab["node1"]
    operator = bare_lab.ssh("node1", "echo $SSH_CONNECTION").stdout.split()[0]
    node.run("sh", "-c", f"tar -cpf /root/ufw.tar $(ls {MANIFEST} {' '.join(FILES)} 2>/dev/null)")
    active = "Status: active" in node.run("ufw", "status")
    node.run("ufw", "--force", "disable")
    node.run("ufw", "delete", "allow", f"{node.spec.ssh_port}/tcp", check=False)
    node.run("ufw", "deny", "from", operator)
    try:
        yield node
    finally:
        node.run("rm", "-f", MANIFEST)
        node.run("tar", "-C", "/", "-xpf", "/root/ufw.tar")
        node.run("rm", "/root/ufw.tar")
        node.run("rmdir", "--ignore-fail-on-non-empty", STATE)
        node.run(*(("ufw", "reload") if active else ("/lib/ufw/ufw-init", "force-stop")))


def test_a_change_that_locks_the_operator_out_is_taken_back(trap: Node, bare_lab: Lab) -> None:
    before = ufw(trap)
    done = playbook(bare_lab, "site.yml", *CLUSTER_ONLY, "--limit", "node1", "-e", "firewall_rollback_s=8")
    assert done.returncode != 0
    assert recap(done)["node1"]["failed"] == 1, done.stdout
    assert "put its firewall back" in done.stdout or "takes it back by itself" in done.stdout
    assert bare_lab.ssh("node1", "true").returncode == 0
    assert ufw(trap) == before


def test_what_nobody_has_confirmed_at_a_reboot_is_taken_back(trap: Node, bare_lab: Lab) -> None:
    before = ufw(trap)
    words = [ROOT / ".venv/bin/ansible-playbook", "-i", bare_lab.place.inventory, "playbooks/site.yml"]
    operator = subprocess.Popen(
        [*words, *CLUSTER_ONLY, "--limit", "node1"], cwd=ROOT, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while "Status: active" not in trap.run("ufw", "status"):
            assert operator.poll() is None, "ufw was not switched on"
            time.sleep(0.2)
    finally:
        os.killpg(operator.pid, signal.SIGKILL)  # the operator's computer dies as well
        operator.wait()
    with node_faults.Reboot(trap):
        pass
    assert bare_lab.ssh("node1", "true").returncode == 0
    assert ufw(trap) == before
