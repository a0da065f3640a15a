"""Provisioning two dozen nodes, and 31 behind a jump host, with `make`: how long it takes; nothing may fail.

Two labs, one after the other. First 24 nodes: everything that needs no engine, once more with nothing to change, and
verified. Then 32, of which 31 are reached through the last one, whose sshd closes connections at random from ten that
have not logged in yet (MaxStartups 10:30:100): the SSH mesh, verified, and the launcher's own connections to all, each
time with no connection kept from before.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.result import Result, Row
from lab import lab
from lab.base.place import Place
from lab.nodes import spec
from lab.nodes.spec import LabSpec
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.commands.inventory import open_cluster
from launcher.ssh.pool import connected

_MANY, _BEHIND = 24, 31
_WITHOUT_ENGINE = "TAGS=firewall,ssh_mesh,comm_env,job_folders"
_MESH = "TAGS=ssh_mesh"
_REPETITIONS = 3
_TIMEOUT_S = 1800


def measure(quick: bool) -> Result:
    """Return the seconds of each verb on both labs.

    Args:
        quick: repeat nothing on the second lab.

    Raises:
        RingmasterError: a run fails, on whatever node.
    """
    repetitions = 1 if quick else _REPETITIONS
    rows = [*_direct(Place(name="bench-many")), *_behind(Place(name="bench-jump"), repetitions)]
    return Result(
        name="provision",
        title="Provisioning many nodes",
        command="make bench ONLY=provision",
        rows=tuple(rows),
        notes=(
            f"All nodes are containers on this machine. {_MANY} nodes that are reached directly, without the engine's "
            f"roles (`{_WITHOUT_ENGINE}`). Then {_BEHIND} nodes behind one more with `MaxStartups 10:30:100`, "
            f"`{_MESH}`; no connection was kept between these runs. A run with a failure is no measurement.",
        ),
    )


def _direct(place: Place) -> Iterator[Row]:
    with _a_lab(place, spec.lab(nodes=_MANY)) as seconds:
        yield Row(label=f"{_MANY} nodes: `make lab`, until all let us in", unit="s", values=(seconds,))
        for what, verb in (
            ("`make provision`", "provision"),
            ("the same again", "provision"),
            ("`make verify`", "verify"),
        ):
            taken = _make(place, verb, _WITHOUT_ENGINE)
            yield Row(label=f"{_MANY} nodes: {what}", unit="s", values=(taken,))


def _behind(place: Place, repetitions: int) -> Iterator[Row]:
    with _a_lab(place, spec.lab(nodes=_BEHIND + 1, jump=True)) as seconds:
        yield Row(label=f"{_BEHIND} behind one: `make lab`, until all let us in", unit="s", values=(seconds,))
        _make(place, "provision", _MESH)  # uncounted: makes the keys
        for verb in ("provision", "verify"):
            values = tuple(_make(place, verb, _MESH) for _ in range(repetitions))
            yield Row(label=f"{_BEHIND} behind one: `make {verb}`, nothing to change", unit="s", values=values)
        values = tuple(_open_all(place) for _ in range(repetitions))
        yield Row(label=f"{_BEHIND} behind one: the launcher's connections to all", unit="s", values=values)


@contextmanager
def _a_lab(place: Place, wanted: LabSpec) -> Iterator[float]:
    """Give the seconds that the lab took; it is removed at the end, also if it never came up."""
    try:
        started = time.monotonic()
        lab.up(wanted, place)
        yield time.monotonic() - started
    finally:
        lab.down(place)


def _make(place: Place, verb: str, tags: str) -> float:
    """Return the seconds of `make <verb>`, over connections of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as sockets:
        started = time.monotonic()
        done = subprocess.run(
            ["make", "-s", "-C", str(ROOT), verb, tags, f"INVENTORY={place.inventory}"],
            env={**os.environ, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets}, text=True, timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        seconds = time.monotonic() - started
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise RingmasterError(f"make {verb} failed, see above", exit_code=ExitCode.FAILED)
    return seconds


def _open_all(place: Place) -> float:
    """Return the seconds until the launcher is connected to all nodes."""
    inventory = open_cluster(str(place.inventory))
    started = time.monotonic()
    with connected(inventory.hosts, inventory.pins):
        return time.monotonic() - started
