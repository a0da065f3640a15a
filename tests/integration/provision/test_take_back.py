"""`reset.yml` takes everything back, `site.yml` after it does all again. Runs last: it is last in the folder."""

import pytest

from tests.integration.provision import snapshot
from tests.support.provisioned import Provisioned, playbook, recap

pytestmark = [pytest.mark.timeout(900)]


def test_reset_returns_the_nodes_to_what_they_were(provisioned: Provisioned) -> None:
    machines = provisioned.machines
    done = playbook(machines, "reset.yml")
    assert done.returncode == 0, done.stdout[-4000:]
    for name, before in provisioned.virgin.items():
        after = snapshot.take(machines[name])
        assert snapshot.differences(before, after, snapshot.allowed()) == [], name


def test_a_second_reset_finds_nothing(provisioned: Provisioned) -> None:
    done = playbook(provisioned.machines, "reset.yml")
    assert done.returncode == 0
    assert all(one["changed"] == 0 for one in recap(done).values())


def test_provisioned_again_all_is_well(provisioned: Provisioned) -> None:
    done = playbook(provisioned.machines, "site.yml")
    assert done.returncode == 0, done.stdout[-4000:]
    assert playbook(provisioned.machines, "verify.yml").returncode == 0


def test_packages_can_be_kept(provisioned: Provisioned) -> None:
    machines = provisioned.machines
    before = {name: snapshot.take(node) for name, node in machines.nodes.items()}
    done = playbook(machines, "reset.yml", "-e", '{"reset_keep_packages": true}')
    assert done.returncode == 0, done.stdout[-4000:]
    for name, node in machines.nodes.items():
        after = snapshot.take(node)
        packages = {key: value for key, value in before[name].items() if key.startswith("package ")}
        left = {key: value.replace("hi", "ii") for key, value in packages.items()}  # installed, and no longer held
        assert {key: value for key, value in after.items() if key.startswith("package ")} == left
        assert after["holds"] == provisioned.virgin[name]["holds"]
