"""Which GPUs a job gets, beside other jobs and other people's processes."""

from dataclasses import replace
from typing import Any

import pytest

from launcher.cluster.preflight.gpus import (
    GpuChoice,
    JobThere,
    beside,
    choose,
    nameless,
    promised_gpus,
    strangers,
    to_facts,
)
from launcher.cluster.preflight.node_facts import ProbeAnswer
from launcher.image.labels import ImageFacts
from tests.support.probe_answers import TOLD, host, look

BUSY = {"gpu": "GPU-a", "pid": 4242, "name": "python3", "memory_mib": 40000}
OTHER = JobThere(name="other", devices=("0",))
IMAGE = ImageFacts(id="sha256:i", architecture="amd64", labels={"ringmaster.cuda": "13.2"})


def held_by_stranger() -> ProbeAnswer:
    return look(gpu_processes=[BUSY])


@pytest.mark.parametrize(
    ("asked", "settings", "choice"),
    [
        ("all", {}, GpuChoice(devices=("0", "1"), all_gpus=True)),
        ("all", {"gpus": 2}, GpuChoice(devices=("0", "1"), all_gpus=True)),
        ("all", {"gpus": "1"}, GpuChoice(devices=("0",))),
        ("all", {"gpus": 0}, GpuChoice()),
        ("0", {}, GpuChoice(asked=True)),
        ("1", {}, GpuChoice(devices=("0",), asked=True)),
        ("2", {"gpus": 1}, GpuChoice(devices=("0", "1"), asked=True)),
        ("1,", {}, GpuChoice(devices=("1",), asked=True)),
        ("1,0", {}, GpuChoice(devices=("1", "0"), asked=True)),
        ("GPU-b,", {}, GpuChoice(devices=("1",), asked=True)),
        ("1", {"gpus": 3}, GpuChoice(devices=("0",), asked=True)),
    ],
)
def test_choices(asked: str, settings: dict[str, Any], choice: GpuChoice) -> None:
    assert choose(look(), (), asked, promised_gpus(host(**settings))) == choice


@pytest.mark.parametrize(
    ("asked", "settings", "problem"),
    [
        ("all", {"gpus": 3}, "promises 3 GPUs (ringmaster_gpus), nvidia-smi shows 2 (0 GPU-a, 1 GPU-b)"),
        ("3", {}, "GPUS=3: nvidia-smi shows 2"),
        ("0,2,5", {}, "there is no GPU 2, 5; nvidia-smi shows 2"),
        ("0,GPU-a", {}, "stands twice"),
    ],
)
def test_what_is_not_there(asked: str, settings: dict[str, Any], problem: str) -> None:
    choice = choose(look(), (), asked, promised_gpus(host(**settings)))
    assert problem in choice.problem
    assert choice.devices == ()


def test_a_broken_driver_is_no_want_of_gpus() -> None:
    broken = look(gpus=None, troubles={"gpus": "NVIDIA-SMI has failed."})
    assert "nvidia-smi fails (NVIDIA-SMI has failed): " in choose(broken, (), "all", None).problem
    assert choose(broken, (), "0", None).problem == ""
    assert choose(broken, (), "all", 0).problem == ""


def test_of_a_count_those_that_nobody_holds_come_first() -> None:
    assert choose(held_by_stranger(), (), "1", None).devices == ("1",)
    assert choose(look(), (OTHER,), "1", None).devices == ("1",)
    assert choose(held_by_stranger(), (), "2", None).devices == ("0", "1"), "in order, held or not"


def test_strangers_are_named_and_our_own_jobs_are_not() -> None:
    all_of_it = choose(held_by_stranger(), (), "all", None)
    assert strangers(held_by_stranger(), all_of_it, ()) == ["GPU 0 is held by python3 (pid 4242, 40000 MiB)"]
    assert strangers(held_by_stranger(), all_of_it, (OTHER,)) == []
    assert strangers(held_by_stranger(), GpuChoice(devices=("1",)), ()) == []


def test_memory_in_use_that_nobody_claims() -> None:
    full = [{**gpu, "used_mib": 2000} for gpu in TOLD["gpus"]]
    seen = look(gpus=full, gpu_processes=[BUSY])
    choice = GpuChoice(devices=("0", "1"))
    assert nameless(seen, choice, (), mib=1024) == ["2000 MiB of GPU 1 are in use, by nothing that nvidia-smi names"]
    assert nameless(seen, choice, (), mib=2000) == []
    assert nameless(seen, choice, (JobThere(name="j", all_gpus=True),), mib=1024) == []


@pytest.mark.parametrize(
    ("choice", "job", "both"),
    [
        (GpuChoice(devices=("1",), asked=True), OTHER, True),
        (GpuChoice(devices=("1",), asked=True), JobThere(name="j", devices=("GPU-a",)), True),
        (GpuChoice(devices=("0", "1"), asked=True), OTHER, False),
        (GpuChoice(devices=("0",), asked=True), JobThere(name="j", devices=("GPU-a",)), False),
        (GpuChoice(devices=("1",)), OTHER, False),
        (GpuChoice(devices=("1",), asked=True), JobThere(name="j", all_gpus=True), False),
        (GpuChoice(devices=("1",), asked=True), JobThere(name="j"), False),
        (GpuChoice(asked=True), OTHER, False),
    ],
)
def test_two_jobs_share_a_node_only_on_gpus_of_their_own(choice: GpuChoice, job: JobThere, both: bool) -> None:
    assert beside(choice, job, look()) == both


def test_facts_for_the_plan() -> None:
    facts = to_facts(host(ranks_per_node=2), look(), choose(look(), (), "all", None), IMAGE, "r@sha256:r")
    assert (facts.name, facts.address, facts.interface, facts.gpus) == ("node1", "10.0.0.1", "eth1", ("0", "1"))
    assert (facts.cores, facts.settings) == (8, {"ranks_per_node": 2})
    assert facts.container is not None
    assert (facts.container.image, facts.container.digest, facts.container.cuda) == ("sha256:i", "r@sha256:r", "13.2")
    assert (facts.container.user, facts.container.all_gpus, facts.container.job_dir) == ("1000:1000", True, "/jobs")


def test_root_is_the_images_own_user() -> None:
    container = to_facts(host(), replace(look(), uid=0, gid=0), GpuChoice(), IMAGE, "r").container
    assert container is not None
    assert container.user == "10001:10001"
