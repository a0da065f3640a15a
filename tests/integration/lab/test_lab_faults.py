"""Every fault shows its effect, and its undo takes the effect away."""

import shutil
import subprocess
import time

import pytest

from lab.base.place import STATE
from lab.faults import links, node_faults
from lab.lab import Lab
from lab.nodes import ready
from launcher.base.errors import RingmasterError
from tests.integration.lab import small_image

# The first test of all builds the images.
pytestmark = pytest.mark.timeout(600)
_PING = ("ping", "-c1", "-W1")


def _reachable(lab: Lab, name: str, seconds: float = 60) -> bool:
    """Does the node let the operator in, within so many seconds?"""
    try:
        return lab.ssh(name, "true", timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def test_kill(shared_lab: Lab) -> None:
    node = shared_lab["node2"]
    node.run("sh", "-c", "echo kept >/var/tmp/kept; sync")
    with node_faults.Kill(node):
        assert node.state == "exited"
        assert not _reachable(shared_lab, "node2", seconds=3)
        assert not shared_lab["node1"].succeeds(*_PING, node.address)
    assert _reachable(shared_lab, "node2")
    assert node.run("cat", "/var/tmp/kept") == "kept\n"


def test_freeze(shared_lab: Lab) -> None:
    with node_faults.Freeze(shared_lab["node2"]):
        assert not _reachable(shared_lab, "node2", seconds=3)
        # Its kernel still answers: only nobody is at home.
        assert shared_lab["node1"].succeeds(*_PING, shared_lab["node2"].address)
    assert _reachable(shared_lab, "node2")


def test_what_is_killed_can_not_be_frozen(shared_lab: Lab) -> None:
    node = shared_lab["node2"]
    with node_faults.Kill(node):
        with pytest.raises(RingmasterError, match="exited and can't be frozen"), node_faults.Freeze(node):
            pass
        node_faults.Partition(node, shared_lab["node1"]).undo()  # tolerates one that is down
        links.Shape(node).undo()
    assert _reachable(shared_lab, "node2")


def test_a_partition_that_fails_leaves_nothing(shared_lab: Lab) -> None:
    first, second = shared_lab["node1"], shared_lab["node2"]
    with node_faults.Kill(second), pytest.raises(RingmasterError, match="node2"):
        node_faults.Partition(first, second).start()
    assert "DROP" not in first.run("iptables", "-t", "raw", "-S")


def test_a_unit_that_fails_later_is_only_said(shared_lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    node = shared_lab["node3"]
    node.run("systemd-run", "--wait", "--unit=broken", "false", check=False)
    try:
        ready.await_systemd(node)
        assert "some units failed: broken.service" in capfd.readouterr().err
        with pytest.raises(RingmasterError, match=r"broken\.service"):
            ready.await_systemd(node, fresh=True)
    finally:
        node.run("systemctl", "reset-failed")


def test_reboot(shared_lab: Lab) -> None:
    node = shared_lab["node3"]
    node.run("touch", "/run/gone", "/var/tmp/kept")
    with node_faults.Reboot(node):
        pass
    assert not node.succeeds("test", "-e", "/run/gone")
    assert node.succeeds("test", "-e", "/var/tmp/kept")
    assert _reachable(shared_lab, "node3")


def test_partition(shared_lab: Lab) -> None:
    first, second, third = (shared_lab[name] for name in ("node1", "node2", "node3"))
    assert first.succeeds(*_PING, second.address)
    with node_faults.Partition(first, second):
        assert not first.succeeds(*_PING, second.address)
        assert not second.succeeds(*_PING, first.address)
        assert first.succeeds(*_PING, third.address)
        assert _reachable(shared_lab, "node1")
        assert _reachable(shared_lab, "node2")
    assert first.succeeds(*_PING, second.address)


def test_undone_by_another_process_and_done_twice(shared_lab: Lab) -> None:
    first, second = shared_lab["node1"], shared_lab["node2"]
    node_faults.Partition(first, second).apply()
    node_faults.Partition(first, second).apply()
    node_faults.Partition(first, second).undo()
    node_faults.Partition(first, second).undo()
    assert first.succeeds(*_PING, second.address)


def test_cut_ssh(shared_lab: Lab) -> None:
    with node_faults.CutSsh(shared_lab["node1"]):
        assert not _reachable(shared_lab, "node1", seconds=3)
        address = shared_lab["node1"].address
        assert "SSH-2.0" in shared_lab["node2"].run("timeout", "20", "bash", "-c", f"head -n1 </dev/tcp/{address}/22")
    assert _reachable(shared_lab, "node1")


def test_fill_disk(shared_lab: Lab) -> None:
    node = shared_lab["node1"]
    write = ("dd", "if=/dev/zero", "of=/var/tmp/checkpoint", "bs=1M", "count=20", "conv=fsync")
    free = shutil.disk_usage(STATE).free
    try:
        with node_faults.FillDisk(node):
            assert "No space left on device" in node.run(*write, check=False)
        assert node.succeeds(*write)
        with node_faults.FillDisk(node, left_mb=100):
            assert node.succeeds(*write)
    finally:
        node.run("rm", "-f", "/var/tmp/checkpoint")
    assert free - shutil.disk_usage(STATE).free < 1 << 30  # it was not this machine's disk


def test_limit_memory(shared_lab: Lab) -> None:
    node = shared_lab["node1"]
    hungry = ("python3", "-c", "print(len(b'x' * (300 << 20)))")
    assert node.succeeds(*hungry)
    with node_faults.LimitMemory(node, mb=256):
        assert not node.succeeds(*hungry)
        limit = node.run("sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes || cat /sys/fs/cgroup/memory.max")
        assert str(256 << 20) in limit  # of the group that also holds what the node's engine runs
    assert node.succeeds(*hungry)


def test_pin(shared_lab: Lab) -> None:
    node = shared_lab["node1"]
    every = node.run("nproc")
    running = node.run("docker", "run", "--rm", "-d", small_image.provide(node), "sleep", "100").strip()
    inside = ("docker", "exec", running, "nproc")
    try:
        with node_faults.Pin(node, cores="0"):
            assert node.run("nproc") == node.run(*inside) == "1\n"
        assert node.run("nproc") == node.run(*inside) == every
    finally:
        node.run("docker", "kill", running)


def test_clock_offset(shared_lab: Lab) -> None:
    with node_faults.ClockOffset(shared_lab["node1"], seconds=-90):
        assert _is_ahead(shared_lab, "node1", -90)
    assert _is_ahead(shared_lab, "node1", 0)


def test_shape(shared_lab: Lab) -> None:
    first, second = shared_lab["node1"], shared_lab["node2"]
    with links.Shape(first, rate="100mbit"):
        # A busy machine can starve who measures, so the best of three; nothing makes a link faster than it is.
        measured = [links.bandwidth(first, second) for _ in range(3)]
        assert max(measured) == pytest.approx(100e6, rel=0.15), measured
        assert links.bandwidth(second, first, seconds=1) > 300e6  # the other direction is another matter
    assert links.bandwidth(first, second, seconds=1) > 300e6


def _is_ahead(lab: Lab, name: str, seconds: float) -> bool:
    """Is its clock that far ahead? Measured around the call: how long that takes makes no difference."""
    before = time.time()
    there = float(lab.ssh(name, "date +%s.%N").stdout)
    return before - 0.1 <= there - seconds <= time.time() + 0.1
