"""From three bare, unequal machines to a cluster: what `site.yml` and `verify.yml` do, on the lab."""

import re
import subprocess

import pytest

from launcher.base.paths import ROOT
from tests.integration.provision import snapshot
from tests.support.provisioned import Provisioned, playbook, recap

pytestmark = [pytest.mark.timeout(900)]


def fine(done: "subprocess.CompletedProcess[str]") -> bool:
    return done.returncode == 0 and all(one["failed"] == one["unreachable"] == 0 for one in recap(done).values())


def test_check_mode_passes_on_virgin_nodes_and_changes_nothing(provisioned: Provisioned) -> None:
    assert fine(provisioned.check), provisioned.check.stdout[-4000:] + provisioned.check.stderr
    assert all(one["changed"] > 0 for one in recap(provisioned.check).values())
    for name, before in provisioned.virgin.items():
        assert snapshot.differences(before, provisioned.checked[name], snapshot.allowed()) == []


def test_the_first_run_converges(provisioned: Provisioned) -> None:
    assert fine(provisioned.first), provisioned.first.stdout[-6000:] + provisioned.first.stderr


def test_the_second_run_changes_nothing(provisioned: Provisioned) -> None:
    assert fine(provisioned.second), provisioned.second.stdout[-6000:]
    assert {name: one["changed"] for name, one in recap(provisioned.second).items()} == dict.fromkeys(
        provisioned.virgin, 0
    )


def test_verify_passes(provisioned: Provisioned) -> None:
    done = playbook(provisioned.machines, "verify.yml")
    assert fine(done), done.stdout[-4000:]
    assert all(one["changed"] == 0 for one in recap(done).values())


def test_what_differs_between_the_nodes_is_said(provisioned: Provisioned) -> None:
    said = provisioned.first.stdout
    assert "warning: node3: its clock is" in said
    assert re.search(r"warning: all: MTUs differ \(node1 (\d+), node2 1300, node3 \1\)", said)


def test_nothing_but_ssh_listens_for_others(provisioned: Provisioned) -> None:
    for name, node in provisioned.machines.nodes.items():
        sockets = [line.split()[3].rpartition(":") for line in node.run("ss", "-ltnH").splitlines()]
        others = {int(port) for address, _, port in sockets if not address.startswith(("127.", "[::1]"))}
        assert others == {node.spec.ssh_port}, name


def test_keys_and_the_journal_are_private(provisioned: Provisioned) -> None:
    private = ["/home/ops/.ssh", "/home/ops/.ssh/id_ed25519", "/home/ops/.ssh/authorized_keys"]
    for node in provisioned.machines.nodes.values():
        modes = node.run("stat", "-c", "%a %U", *private, "/var/lib/ringmaster/manifest.json")
        assert modes.splitlines() == ["700 ops", "600 ops", "600 ops", "600 root"]


def test_no_private_key_is_on_the_controller(provisioned: Provisioned) -> None:
    begin = "b3BlbnNzaC1rZXktdjE|BEGIN (RSA|EC|DSA) PRIVATE"  # the first is an OpenSSH key's own
    search = ["git", "grep", "-lE", begin, "--", ":!tests"]
    assert subprocess.run(search, cwd=ROOT, capture_output=True, text=True).stdout == ""
    keys = {node.run("cat", "/home/ops/.ssh/id_ed25519") for node in provisioned.machines.nodes.values()}
    assert len(keys) == len(provisioned.machines.nodes)
    fetched = [path for path in (ROOT / ".lab" / "bare").rglob("*") if path.is_file() and path.stat().st_size < 10_000]
    assert not any(path.read_text(errors="replace") in keys for path in fetched)
