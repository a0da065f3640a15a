"""From three bare, unequal machines to a cluster: what `site.yml` and `verify.yml` do, on the lab."""

import re
import subprocess

import pytest

from tests.integration.provision import snapshot
from tests.integration.provision.conftest import Provisioned, playbook, recap

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
