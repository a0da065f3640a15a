"""Labs for the tests that need machines: their own, never the user's."""

import os
from collections.abc import Iterator

import pytest

from tests.lab import engine, lab, spec
from tests.lab.lab import Lab
from tests.lab.place import Place

WANTED = spec.lab(nodes=3, engine=True, gpus=2)
OWN = Place(name="test")


def required() -> bool:
    return os.environ.get("RINGMASTER_LAB") == "required"


def kept() -> bool:
    """While tests are written: use the tests' lab again as it is, and leave it up for the next run."""
    return os.environ.get("RINGMASTER_LAB_REUSE") == "1"


@pytest.fixture(scope="session")
def an_engine() -> None:
    """A Docker engine: found; with LAB=required installed and started where there is none."""
    if required():
        engine.ensure()
    elif engine.connect() is None:
        pytest.skip("no Docker engine answers here (make test LAB=required installs and starts one)")


@pytest.fixture(scope="session")
def shared_lab(an_engine: None) -> Iterator[Lab]:
    """Three nodes with engine and two stand-in GPUs each. Leave them as you found them."""
    try:
        # What an interrupted run has left is not what tests begin with: the nodes are made anew.
        yield lab.up(WANTED, OWN, renew=() if kept() else [node.name for node in WANTED.nodes])
    finally:
        if not kept():
            lab.down(OWN)
