"""Three bare, unequal nodes that the provisioning tests share, and what the first runs on them did."""

from collections.abc import Iterator

import pytest

from lab import lab
from lab.base.place import Place
from lab.lab import Lab
from lab.nodes import spec
from tests.integration.provision import snapshot
from tests.support.environment import kept
from tests.support.provisioned import Provisioned, playbook

WANTED = spec.lab(nodes=3, unequal=True)
OWN = Place(name="bare")


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
