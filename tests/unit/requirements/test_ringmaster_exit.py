import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from requirements import ringmaster_exit
from requirements.ringmaster_exit import wait_for_gloo

QUIET, LONGEST = 0.02, 5.0


class Tasks:
    """A process's threads as /proc shows them, and a clock that only `sleep` moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.states: dict[str, Iterator[str]] = {}
        """The rest of each thread's states, one for each time that somebody looks."""

    def add(self, number: int, name: str, states: str) -> None:
        """Add a thread; the last of its states stays."""
        (self.folder / str(number)).mkdir()
        self.states[f"{number} ({name})"] = iter(states)
        self.step()

    def step(self) -> None:
        for thread, states in self.states.items():
            if state := next(states, ""):
                file = self.folder / thread.partition(" ")[0] / "stat"
                file.unlink(missing_ok=True)
                if state != "-":
                    file.write_text(f"{thread} {state} 1 2 3\n")

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.step()


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    tasks = Tasks(tmp_path)
    monkeypatch.setattr(ringmaster_exit, "sleep", tasks.sleep)
    monkeypatch.setattr(ringmaster_exit, "monotonic", lambda: tasks.now)
    monkeypatch.setitem(sys.modules, "torch.distributed", ModuleType("torch.distributed"))
    return tasks


def waited(tasks: Tasks) -> float:
    wait_for_gloo(str(tasks.folder))
    return tasks.now


def test_a_program_without_torch_does_not_wait(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks.add(1, "pt_gloo_runloop", "R")
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert waited(tasks) == 0


def test_a_program_without_gloo_does_not_wait(tasks: Tasks) -> None:
    tasks.add(1, "python", "R")
    tasks.add(2, "pt_nccl_watchdg", "R")
    assert waited(tasks) == 0


@pytest.mark.parametrize("name", ["pt_gloo_runloop", "gloo_tcp_loop", "gloo ) R (x"])
def test_sleeping_threads_are_watched_for_a_while(tasks: Tasks, name: str) -> None:
    tasks.add(1, "python", "R")
    tasks.add(2, name, "S")
    assert waited(tasks) == pytest.approx(QUIET)


def test_a_running_thread_is_waited_for(tasks: Tasks) -> None:
    tasks.add(1, "pt_gloo_runloop", "S")
    tasks.add(2, "pt_gloo_runloop", "R" * 51 + "S")
    assert waited(tasks) == pytest.approx(0.1 + QUIET)


def test_one_that_wakes_again_is_waited_for_again(tasks: Tasks) -> None:
    tasks.add(1, "pt_gloo_runloop", "SSSSSRSSSSDS")
    assert waited(tasks) == pytest.approx(0.02 + QUIET)


def test_one_that_ends_is_not_waited_for(tasks: Tasks) -> None:
    tasks.add(1, "pt_gloo_runloop", "RRRRR-")
    assert waited(tasks) == pytest.approx(0.008 + QUIET)


def test_one_that_never_sleeps_is_given_up(tasks: Tasks) -> None:
    tasks.add(1, "pt_gloo_runloop", "R")
    assert waited(tasks) == pytest.approx(LONGEST, abs=0.003)  # up to one pause longer


def test_a_system_without_proc(tasks: Tasks) -> None:
    wait_for_gloo(str(tasks.folder / "none"))
    assert tasks.now == 0


def test_a_signal_handler_that_raises_ends_the_wait_and_nothing_else(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        tasks.now += seconds
        raise KeyboardInterrupt

    monkeypatch.setattr(ringmaster_exit, "sleep", interrupted)
    tasks.add(1, "pt_gloo_runloop", "R")
    assert 0 < waited(tasks) < QUIET
