"""Trainings behind the benchmarks: which devices, which commands, which figures."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import trainings
from benchmarks.trainings import (
    Node,
    Training,
    confined,
    devices,
    even,
    merged,
    node_commands,
    one_thread_each,
    training_of,
)
from launcher.base.errors import RingmasterError

_DONE = Training(seconds=(4.0, 5.0, 6.0), accuracies=(0.85, 0.91, 0.90), test_losses=(0.5, 0.4, 0.45))


@pytest.mark.parametrize(
    ("accuracy", "epoch", "seconds"), [(0.85, 0, 4.0), (0.9, 1, 9.0), (0.91, 1, 9.0), (0.92, None, None)]
)
def test_time_to_an_accuracy_ends_with_the_first_epoch_that_has_it(
    accuracy: float, epoch: int | None, seconds: float | None
) -> None:
    assert _DONE.epoch_reaching(accuracy) == epoch
    assert _DONE.seconds_to(accuracy) == seconds


def test_figures_come_from_epoch_and_step_records() -> None:
    records: list[dict[str, Any]] = [
        {"kind": "event", "event": "start"},
        {"kind": "step", "step": 1, "images_per_s": 10.0},
        {"kind": "step", "step": 2, "images_per_s": 50.0},
        {"kind": "step", "step": 3, "images_per_s": 100.0},
        {"kind": "epoch", "seconds": 3.5, "test_accuracy": 0.8, "test_loss": 0.6, "images_per_s": 70.0},
        {"kind": "step", "step": 4, "images_per_s": 102.0},
        {"kind": "step", "step": 5, "images_per_s": 60.0},
        {"kind": "step", "step": 5, "test_accuracy": 0.9, "test_loss": 0.5},
    ]
    assert training_of(records) == Training(
        seconds=(3.5,), accuracies=(0.8,), test_losses=(0.6,), rates=(100.0, 102.0), epoch_rates=(70.0,)
    )


def test_a_short_run_has_the_rate_of_its_last_record() -> None:
    records = [{"kind": "step", "step": step, "images_per_s": rate} for step, rate in ((1, 10.0), (2, 80.0))]
    assert training_of(records).rates == (80.0,)
    assert training_of([]).rates == ()


def test_without_gpus_each_core_is_a_device() -> None:
    assert devices([0, 3], ()) == (Node(cores=(0,)), Node(cores=(3,)))


def test_gpus_share_the_cores() -> None:
    assert devices([0, 1, 2, 3], ("0", "1")) == (Node(cores=(0, 1), gpus=("0",)), Node(cores=(2, 3), gpus=("1",)))


def test_more_gpus_than_cores_leave_none_without_a_core() -> None:
    assert [node.cores for node in devices([0, 1], ("0", "1", "2"))] == [(0,), (1,), (0,)]


def test_one_node_of_several_devices_has_a_rank_on_each() -> None:
    both = merged(devices([0, 1], ("a", "b")))
    assert both == Node(cores=(0, 1), gpus=("a", "b"), ranks=2)
    assert both.environment()["CUDA_VISIBLE_DEVICES"] == "a,b"
    assert both.environment()["OMP_NUM_THREADS"] == "1"


def test_a_node_without_gpus_hides_those_of_the_machine_and_uses_all_its_cores() -> None:
    variables = Node(cores=(4, 5, 6)).environment()
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("", "3")


def test_each_node_is_a_torchrun_of_its_own() -> None:
    (first, _), (second, _) = node_commands((Node(cores=(0,)), Node(cores=(1,), ranks=1)), ["-m", "trainer"], 20001)
    common = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", "--master-port=20001", "-m", "trainer"]
    for command, own in ((first, "--node-rank=0"), (second, "--node-rank=1")):
        assert [word for word in command if word in common] == common
        assert own in command
    assert first != second


def test_the_first_epoch_warms_up_unless_it_is_the_only_one() -> None:
    assert Training(seconds=(), accuracies=(), test_losses=(), epoch_rates=(1.0, 2.0, 3.0)).warm_rates == (2.0, 3.0)
    assert Training(seconds=(), accuracies=(), test_losses=(), epoch_rates=(1.0,)).warm_rates == (1.0,)


def test_threads_of_one_physical_core_count_once() -> None:
    pairs = {core: frozenset({core // 2 * 2, core // 2 * 2 + 1}) for core in range(6)}
    assert one_thread_each([0, 1, 2, 3, 5], pairs.__getitem__) == [0, 2, 5]
    assert one_thread_each([4, 1], lambda _core: frozenset()) == [4, 1]


@pytest.mark.parametrize(("there", "used"), [(1, 1), (2, 2), (3, 2), (7, 6), (9, 8), (64, 8)])
def test_the_devices_can_be_halved(there: int, used: int) -> None:
    cores = tuple(Node(cores=(core,)) for core in range(there))
    assert even(cores) == cores[:used]


SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_where_one_process_fails_the_others_are_ended_and_what_was_said_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails = [sys.executable, "-c", "print('said'); raise SystemExit(7)"]
    with pytest.raises(RingmasterError, match="ended with code 7"):
        trainings._run_together([(SLEEPS, {}), (fails, {})])
    assert "said" in capsys.readouterr().err


def test_trainings_apart_run_at_once_each_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_together(commands: Sequence[tuple[list[str], dict[str, str]]]) -> None:
        ports = [word for command, _ in commands for word in command if word.startswith("--master-port=")]
        assert ports == ["--master-port=20000", "--master-port=20002"]
        for rate, (command, _) in enumerate(commands, start=1):
            assert "--nnodes=1" in command and command[-2:] == ["--batch-size", "8"]
            folder = Path(command[command.index("--run-dir") + 1])
            record = {"kind": "epoch", "seconds": 1.0, "test_accuracy": 0.5, "images_per_s": rate}
            (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")

    drawn = iter([20000, 20000, 20001, 20002])
    monkeypatch.setattr(trainings, "free_port", lambda _address: next(drawn))
    monkeypatch.setattr(trainings, "_run_together", run_together)
    trained = trainings.train_apart(("--batch-size", "8"), [Node(cores=(0,)), Node(cores=(1,))])
    assert [one.epoch_rates for one in trained] == [(1.0,), (2.0,)]


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(RingmasterError, match="no end in time"):
        trainings._run_together([(SLEEPS, {})], timeout=0.3)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="core binding is Linux's")
def test_cores_are_given_back() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with pytest.raises(ValueError, match="mine"), confined(Node(cores=(core,))):
        assert os.sched_getaffinity(0) == {core}
        raise ValueError("mine")
    assert os.sched_getaffinity(0) == before
