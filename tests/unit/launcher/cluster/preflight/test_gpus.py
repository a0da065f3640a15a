"""Which GPUs a job gets, given other jobs and other people's processes."""

from typing import Any

import pytest

from launcher.cluster.preflight.gpus import (
    GpuChoice,
    JobOnNode,
    can_share,
    choose_gpus,
    foreign_processes,
    promised_gpus,
    unclaimed_memory,
)
from launcher.cluster.preflight.probe_answer import ProbeAnswer
from tests.support.probe_answers import ANSWER, answer, host

BUSY = {"gpu": "GPU-a", "pid": 4242, "name": "python3", "memory_mib": 40000}
OTHER = JobOnNode(name="other", devices=("0",))


def held_by_stranger() -> ProbeAnswer:
    return answer(gpu_processes=[BUSY])


@pytest.mark.parametrize(
    ("gpus", "settings", "choice"),
    [
        ("all", {}, GpuChoice(devices=("0", "1"), all_gpus=True)),
        ("all", {"gpus": 2}, GpuChoice(devices=("0", "1"), all_gpus=True)),
        ("all", {"gpus": "1"}, GpuChoice(devices=("0",))),
        ("all", {"gpus": 0}, GpuChoice()),
        ("0", {}, GpuChoice(by_user=True)),
        ("1", {}, GpuChoice(devices=("0",), by_user=True)),
        ("2", {"gpus": 1}, GpuChoice(devices=("0", "1"), by_user=True)),
        ("1,", {}, GpuChoice(devices=("1",), by_user=True)),
        ("1,0", {}, GpuChoice(devices=("1", "0"), by_user=True)),
        ("GPU-b,", {}, GpuChoice(devices=("1",), by_user=True)),
        ("1", {"gpus": 3}, GpuChoice(devices=("0",), by_user=True)),
    ],
)
def test_choices(gpus: str, settings: dict[str, Any], choice: GpuChoice) -> None:
    assert choose_gpus(answer(), (), gpus, promised_gpus(host(**settings))) == choice


@pytest.mark.parametrize(
    ("gpus", "settings", "problem"),
    [
        ("all", {"gpus": 3}, "promises 3 GPUs (ringmaster_gpus), nvidia-smi shows 2 (0 GPU-a, 1 GPU-b)"),
        ("3", {}, "GPUS=3: nvidia-smi shows 2"),
        ("0,2,5", {}, "there is no GPU 2, 5; nvidia-smi shows 2"),
        ("0,GPU-a", {}, "named twice"),
    ],
)
def test_what_is_not_there(gpus: str, settings: dict[str, Any], problem: str) -> None:
    choice = choose_gpus(answer(), (), gpus, promised_gpus(host(**settings)))
    assert problem in choice.problem
    assert choice.devices == ()


def test_a_broken_driver_is_no_lack_of_gpus() -> None:
    broken = answer(gpus=None, troubles={"gpus": "NVIDIA-SMI has failed."})
    assert "nvidia-smi fails (NVIDIA-SMI has failed): " in choose_gpus(broken, (), "all", None).problem
    assert choose_gpus(broken, (), "0", None).problem == ""
    assert choose_gpus(broken, (), "all", 0).problem == ""


def test_of_a_count_those_that_nobody_holds_come_first() -> None:
    assert choose_gpus(held_by_stranger(), (), "1", None).devices == ("1",)
    assert choose_gpus(answer(), (OTHER,), "1", None).devices == ("1",)
    assert choose_gpus(held_by_stranger(), (), "2", None).devices == ("0", "1"), "in order, held or not"


def test_strangers_are_named_and_our_own_jobs_are_not() -> None:
    all_of_it = choose_gpus(held_by_stranger(), (), "all", None)
    assert foreign_processes(held_by_stranger(), all_of_it, ()) == ["GPU 0 is held by python3 (pid 4242, 40000 MiB)"]
    assert foreign_processes(held_by_stranger(), all_of_it, (OTHER,)) == []
    assert foreign_processes(held_by_stranger(), GpuChoice(devices=("1",)), ()) == []


def test_memory_in_use_that_nobody_claims() -> None:
    full = [{**gpu, "used_mib": 2000} for gpu in ANSWER["gpus"]]
    probed = answer(gpus=full, gpu_processes=[BUSY])
    choice = GpuChoice(devices=("0", "1"))
    assert unclaimed_memory(probed, choice, (), mib=1024) == [
        "2000 MiB of GPU 1 are in use, by no process that nvidia-smi names"
    ]
    assert unclaimed_memory(probed, choice, (), mib=2000) == []
    assert unclaimed_memory(probed, choice, (JobOnNode(name="j", all_gpus=True),), mib=1024) == []


@pytest.mark.parametrize(
    ("choice", "job", "both"),
    [
        (GpuChoice(devices=("1",), by_user=True), OTHER, True),
        (GpuChoice(devices=("1",), by_user=True), JobOnNode(name="j", devices=("GPU-a",)), True),
        (GpuChoice(devices=("0", "1"), by_user=True), OTHER, False),
        (GpuChoice(devices=("0",), by_user=True), JobOnNode(name="j", devices=("GPU-a",)), False),
        (GpuChoice(devices=("1",)), OTHER, False),
        (GpuChoice(devices=("1",), by_user=True), JobOnNode(name="j", all_gpus=True), False),
        (GpuChoice(devices=("1",), by_user=True), JobOnNode(name="j"), False),
        (GpuChoice(by_user=True), OTHER, False),
    ],
)
def test_two_jobs_share_a_node_only_on_gpus_of_their_own(choice: GpuChoice, job: JobOnNode, both: bool) -> None:
    assert can_share(choice, job, answer()) == both
