"""A lab of bare, unequal nodes, brought up and taken down: what is promised of `make lab` and `make lab-down`."""

import json
import socket
import stat
import subprocess
import time
from collections.abc import Iterator

import docker
import pytest

from lab import lab
from lab.base.place import LABEL, Place
from lab.host import engine
from lab.lab import Lab
from lab.nodes import ready, spec
from launcher.base.paths import ROOT
from launcher.inventory import hosts as inventory

pytestmark = [pytest.mark.usefixtures("an_engine"), pytest.mark.timeout(600)]
PLACE = Place(name="odd")
UNEQUAL = spec.lab(nodes=3, unequal=True)


@pytest.fixture(scope="module")
def machines() -> Iterator[Lab]:
    try:
        yield lab.up(UNEQUAL, PLACE, renew=[node.name for node in UNEQUAL.nodes])
    finally:
        lab.down(PLACE)


def test_every_node_is_a_machine_of_its_own(machines: Lab) -> None:
    for name in machines.nodes:
        done = machines.ssh(
            name, "hostname && systemctl is-system-running && sudo ufw status && findmnt -no FSTYPE /var"
        )
        assert done.returncode == 0, done.stderr
        host, state, firewall, *_, disk = done.stdout.splitlines()
        assert (host, state, firewall, disk) == (name, "running", "Status: active", "ext4")


def test_they_are_bare(machines: Lab) -> None:
    for name in machines.nodes:
        there = machines.ssh(name, "command -v docker nvidia-smi nvidia-container-runtime-hook; ls /etc/ringmaster")
        assert there.stdout == ""
    boots = {
        machines.ssh(name, "cat /etc/ssh/ssh_host_ed25519_key.pub; cat /etc/machine-id").stdout
        for name in machines.nodes
    }
    assert len(boots) == 3  # nothing of it comes from the image


def test_another_host_key_is_refused(machines: Lab) -> None:
    lines = PLACE.known_hosts.read_text().splitlines()
    keys = [line.split()[-1] for line in lines]
    swapped = PLACE.state / "swapped"
    swapped.write_text(
        "".join(f"{line.rsplit(' ', 1)[0]} {key}\n" for line, key in zip(lines, keys[1:] + keys[:1], strict=True))
    )
    done = subprocess.run(
        ["ssh", "-F", str(PLACE.ssh_config), "-o", f"UserKnownHostsFile={swapped}", "-o", "BatchMode=yes",
         "node1", "true"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_the_operators_key_is_private_and_ignored(machines: Lab) -> None:
    assert stat.S_IMODE(PLACE.key.stat().st_mode) == 0o600
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "-q", str(PLACE.key)], timeout=20)
    assert ignored.returncode == 0


def test_the_inventory_is_one_the_launcher_reads(machines: Lab) -> None:
    hosts = inventory.read(PLACE.inventory)
    assert [(host.name, host.address) for host in hosts] == [
        (node.name, node.address) for node in machines.nodes.values()
    ]
    assert all(host.settings["backend"] == "gloo" for host in hosts)


def test_ansible_reaches_them_with_the_written_files_alone(machines: Lab) -> None:
    done = subprocess.run(
        [ROOT / ".venv/bin/ansible", "-i", PLACE.inventory, "nodes", "-b", "-m", "command", "-a", "id -u"],
        capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    assert done.stdout.count("CHANGED | rc=0") == 3, done.stdout + done.stderr


def test_apt_works_in_a_node_as_on_this_machine(machines: Lab) -> None:
    done = machines.ssh("node3", "sudo apt-get -qq update && sudo apt-get -qq install -y hello && hello", timeout=120)
    assert "Hello, world!" in done.stdout, done.stdout + done.stderr


def test_each_is_unequal_in_its_own_way(machines: Lab) -> None:
    first = machines.ssh(
        "node1", "ip -json route get 1.1.1.1; getent hosts $(hostname); grep -w $(hostname) /etc/hosts"
    )
    assert json.loads(first.stdout.splitlines()[0])[0]["dev"] == "ens5"
    assert "127.0.1.1" in first.stdout.splitlines()[-1]

    assert machines["node2"].spec.ssh_port == 2222
    second = machines.ssh(
        "node2", "cat /sys/class/net/eth0/mtu; tail -c1 ~/.ssh/authorized_keys; tail -c1 ~/.bashrc"
    ).stdout
    assert second.startswith("1300\n")
    assert not second.removeprefix("1300\n").count("\n")
    with pytest.raises(OSError), socket.create_connection((machines["node2"].address, 22), timeout=2):
        pass

    before = time.time()
    third = machines.ssh("node3", "date +%s.%N && sudo date +%s.%N && ip -json route get 1.1.1.1").stdout.splitlines()
    assert all(before - 0.1 <= float(clock) - 30 <= time.time() + 0.1 for clock in third[:2])
    out = json.loads(third[2])[0]
    assert out["dev"] != "eth0"  # the wrong card: the other nodes are reached by eth0
    peer = json.loads(machines.ssh("node3", f"ip -json route get {machines['node1'].address}").stdout)[0]
    assert (peer["dev"], peer["prefsrc"]) == ("eth0", machines["node3"].address)


def test_a_second_time_changes_nothing(machines: Lab) -> None:
    before = {name: node.container.id for name, node in machines.nodes.items()}
    again = lab.up(UNEQUAL, PLACE)
    assert {name: node.container.id for name, node in again.nodes.items()} == before


def test_a_reboot_from_inside_brings_it_back_as_it_was(machines: Lab) -> None:
    node = machines["node1"]
    machines.ssh("node1", "echo kept | sudo tee /var/lib/kept /home/ops/kept")
    started = _started(node.container)
    machines.ssh("node1", "sudo systemctl reboot")
    deadline = time.monotonic() + 60
    while _started(node.container) == started or machines.ssh("node1", "true").returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    done = machines.ssh("node1", "cat /var/lib/kept ~/kept; ip -br link show ens5; sudo ufw status")
    assert done.stdout.startswith("kept\nkept\n")
    assert "Status: active" in done.stdout
    assert lab.find(PLACE)["node1"].read_settings()["ADDRESS"] == node.address


def test_of_a_node_that_does_not_boot_its_systemd_and_journal_are_asked(machines: Lab) -> None:
    node = machines["node1"]
    node.run("systemd-run", "--no-block", "--unit=stuck", "--property=Type=oneshot", "sleep", "infinity")
    node.run("logger", "--priority", "user.err", "the flux capacitor is missing")
    try:
        node.run("sh", "-c", "until journalctl -b -p err | grep -q capacitor; do sleep 0.1; done")
        why = ready._why_not_booted(node, "starting")
    finally:
        node.run("systemctl", "stop", "stuck")
    assert why.startswith("systemd: starting; still starting: stuck.service; ")
    assert "the flux capacitor is missing" in why


def test_only_what_differs_is_made_anew(machines: Lab) -> None:
    before = {name: node.container.id for name, node in machines.nodes.items()}
    changed = spec.lab(nodes=2, unequal=True, overrides=["node2:mtu=1280,behind=node1"])
    after = lab.up(changed, PLACE)
    assert list(after.nodes) == ["node1", "node2"]
    assert after["node1"].container.id == before["node1"]
    assert after["node2"].container.id != before["node2"]
    assert after.ssh("node2", "cat /sys/class/net/eth0/mtu").stdout == "1280\n"
    words = ["ssh", "-F", PLACE.ssh_config, "-o", "BatchMode=yes", "-o", "ProxyJump=none", "node2", "true"]
    directly = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert "Permission denied" in directly.stderr  # it lets in nobody but nodes: the login above went through node1


def test_lab_down_leaves_nothing(machines: Lab) -> None:
    """The last test of this file."""
    client = engine.needed()
    disks = {path.stat().st_ino for path in PLACE.state.glob("nodes/*/disk.img")}
    # A loop device is there as long as anybody, in whatever namespace, has the disk mounted.
    assert disks <= _mounted()
    assert _left(client)
    assert stat.S_IMODE(PLACE.state.stat().st_mode) == 0o700
    lab.down(PLACE)
    assert not _left(client)
    assert not PLACE.state.exists()
    assert not PLACE.inventory.exists()
    assert not disks & _mounted()
    lab.down(PLACE)  # once more is no error


def _left(client: docker.DockerClient) -> list[object]:
    mine = {"label": f"{LABEL}={PLACE.label}"}
    return [
        *client.containers.list(all=True, filters=mine),
        *client.networks.list(filters=mine),
        *client.volumes.list(filters=mine),
    ]


def _mounted() -> set[int]:
    """The inodes of the files behind this machine's loop devices."""
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-INO"],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    return {int(word) for word in listed.stdout.split()}


def _started(container: docker.models.containers.Container) -> str:
    container.reload()
    return str(container.attrs["State"]["StartedAt"])
