"""An operator, and a node that lets it in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ssh.connection import Remote
from launcher.ssh.pool import connected
from tests.support.cluster.sshd import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for machine in place.machines:
        machine.stop()


@pytest.fixture
def node(place: Place) -> Iterator[Remote]:
    """A node that is known, and a connection to it."""
    machine = place.machine()
    place.pin(machine.port, machine.key)
    with connected([place.host(machine.port)], place.pins) as remotes:
        yield remotes["node1"]
