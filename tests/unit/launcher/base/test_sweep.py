"""What a job left behind is found by label, or below us in the tree; who cleans up after the others comes last."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base import sweep as module
from launcher.base.adoption import Adoption, Seat, below, seat
from launcher.base.sweep import sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others have no /proc")


def seats(**of: tuple[int, int]) -> dict[int, Seat]:
    """Return a table of processes: p7=(parent, session)."""
    return {
        int(name[1:]): Seat(parent=parent, session=session, state="S", start=f"at {name}")
        for name, (parent, session) in of.items()
    }


def test_what_left_our_session_below_us_is_the_jobs() -> None:
    table = seats(p1=(0, 1), p5=(1, 5), p6=(5, 5), p7=(5, 7), p8=(7, 7), p9=(6, 9), p10=(1, 10), p11=(8, 11))
    assert below(5, 5, table, ()) == {7, 8, 9, 11}, "6 is a helper of our own, 10 somebody else's"


def test_what_is_below_a_child_that_was_there_before_is_not() -> None:
    table = seats(p5=(1, 5), p7=(5, 7), p8=(7, 8), p9=(5, 9))
    assert below(5, 5, table, {(7, "at p7")}) == {9}
    assert below(5, 5, table, {(7, "another process of this number")}) == {7, 8, 9}


@given(st.dictionaries(st.integers(1, 9), st.tuples(st.integers(0, 9), st.integers(1, 3))))
def test_no_table_makes_it_go_round_in_circles(
    table: dict[int, tuple[int, int]],
) -> None:
    """A table is read while processes come and go."""
    found = below(1, 1, seats(**{f"p{pid}": place for pid, place in table.items()}), ())
    assert 1 not in found and found <= table.keys()


@pytest.fixture
def adoption() -> Iterator[Adoption]:
    adoption = Adoption()
    adoption.open()
    yield adoption
    adoption.close()


def test_who_clears_its_environment_and_leaves_its_session_is_found(adoption: Adoption) -> None:
    label = f"RINGMASTER_TEST={uuid.uuid4().hex}"
    hides = "import subprocess\nprint(subprocess.Popen(['env', '-i', 'setsid', 'sleep', '600'], stdout=-3).pid)"
    with subprocess.Popen(
        [sys.executable, "-c", hides],
        stdout=subprocess.PIPE,
        env=dict([label.split("=")]),
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        hidden = int(parent.stdout.read())
    while (place := seat(hidden)) is None or place.parent != os.getpid() or place.session != hidden:
        time.sleep(0.01)
    assert sweep(label) == 0, "the label doesn't find it"
    assert sweep(label, adoption.descendants) == 1
    while seat(hidden):
        adoption.bury(())
        time.sleep(0.01)


def test_a_child_that_somebody_waits_for_is_not_buried(adoption: Adoption) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "exit 7"], start_new_session=True) as child:
        while (place := seat(child.pid)) and place.state != "Z":
            time.sleep(0.01)
        adoption.bury([child.pid])
        assert child.wait() == 7
    with subprocess.Popen(["/bin/sh", "-c", "exit 7"]) as child:  # in our session: our own
        while (place := seat(child.pid)) and place.state != "Z":
            time.sleep(0.01)
        adoption.bury(())
        assert child.wait() == 7


@pytest.mark.parametrize("ends_itself", [True, False])
def test_who_cleans_up_after_the_others_ends_by_itself_or_is_killed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_itself: bool
) -> None:
    """torch_shm_manager removes shared memory once all that used it have ended."""
    cleaner = Path(shutil.copy2(shutil.which("sleep") or "", tmp_path / "torch_shm_manager"))
    monkeypatch.setattr(module, "_CLEANS_UP_S", 60.0 if ends_itself else 0.3)
    label = f"RINGMASTER_TEST={uuid.uuid4().hex}"
    environment = dict([label.split("=")])
    with (
        subprocess.Popen([cleaner, "1" if ends_itself else "600"], env=environment) as keeper,
        subprocess.Popen(["sleep", "600"], env=environment) as other,
    ):
        for each in (keeper, other):
            while label.encode() not in Path(f"/proc/{each.pid}/environ").read_bytes():
                time.sleep(0.01)
        assert sweep(label) == (1 if ends_itself else 2)
        assert other.wait() == -signal.SIGKILL
        assert keeper.wait() == (0 if ends_itself else -signal.SIGKILL)
