"""Labs for the tests that need machines: their own, never the user's."""

from collections.abc import Iterator

import pytest

from lab import lab
from lab.base.place import Place
from lab.lab import Lab
from lab.nodes import spec
from tests.support.environment import kept

WANTED = spec.lab(nodes=3, engine=True, gpus=2)
OWN = Place(name="test")


@pytest.fixture(scope="session")
def shared_lab(an_engine: None) -> Iterator[Lab]:
    """Three nodes with engine and two stand-in GPUs each. Leave them as you found them."""
    try:
        # What an interrupted run has left is not what tests begin with: the nodes are made anew.
        yield lab.up(WANTED, OWN, renew=() if kept() else [node.name for node in WANTED.nodes])
    finally:
        if not kept():
            lab.down(OWN)
