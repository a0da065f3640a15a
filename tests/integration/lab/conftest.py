"""One lab for all tests that need machines: the one that is up, if it fits, else one of their own."""

import os
from collections.abc import Iterator

import pytest

from launcher.errors import RingmasterError
from tests.lab import engine, lab, spec
from tests.lab.lab import Lab
from tests.lab.place import Place

# `make lab NODES=3 ENGINE=1 GPUS=2` is this one.
WANTED = spec.lab(nodes=3, engine=True, gpus=2)
OWN = Place(name="test")


def required() -> bool:
    return os.environ.get("RINGMASTER_LAB") == "required"


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
    running = _that_is_up(Place())
    if running is not None:
        yield running
        return
    was_up = _that_is_up(OWN) is not None
    yield lab.up(WANTED, OWN)
    if not was_up:
        lab.down(OWN)


def _that_is_up(place: Place) -> Lab | None:
    """The lab there, if its nodes are those that the tests want."""
    try:
        found = lab.find(place)
    except RingmasterError:
        return None
    return found if tuple(node.spec for node in found.nodes.values()) == WANTED.nodes else None
