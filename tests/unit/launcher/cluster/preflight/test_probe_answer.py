"""The output of a node's probe is read, and nothing in it is trusted."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.preflight.probe_answer import command, parse
from launcher.on_node import probe
from tests.support.probe_answers import ANSWER, FOLDERS, answer, host, interface


def test_an_answer() -> None:
    read = answer(time=1007.5, gpu_processes=[{"gpu": "GPU-b", "pid": 7, "name": "x", "memory_mib": None}])
    assert (read.clock_s, read.architecture, read.job_dir.free) == (7.5, "amd64", 10**12)
    assert str(read.gpu_processes[0]) == "x (pid 7)"


def test_what_could_not_be_looked_at_is_empty() -> None:
    nothing = {name: None for name in ANSWER if name not in {"uid", "gid", "time", "troubles"}}
    read = answer(**nothing, troubles={"gpus": "it fails", "gpu_processes": "it fails", "interfaces": "no ip"})
    assert (read.gpu_problem, read.gpus, read.cores, read.listening) == ("it fails", (), 1, frozenset())
    assert read.troubles == {"interfaces": "no ip"}
    assert not read.job_dir.there


@pytest.mark.parametrize(
    "changed",
    [
        {"uid": "root"},
        {"cores": "many"},
        {"memory": ["much"]},
        {"memlock": {}},
        {"comm_env": ["NCCL_DEBUG"]},
        {"listening": ["http"]},
        {"listening": 20000},
        {"devices": [7]},
        {"interfaces": [{"name": "eth0"}]},
        {"interfaces": [interface("eth0", "everywhere")]},
        {"gpus": [{"later": 1}]},
        {"architecture": ["x86_64"]},
        {"time": None},
        {"troubles": None},
    ],
)
def test_an_answer_of_other_types_is_none(changed: dict[str, Any]) -> None:
    with pytest.raises(RingmasterError, match=r"^node1: the probe failed") as raised:
        answer(**changed)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


@pytest.mark.parametrize("which", ["job_dir", "data_dir"])
def test_a_node_that_looked_at_other_folders_is_not_believed(which: str) -> None:
    output = json.dumps({**ANSWER, which: {**ANSWER[which], "path": "/mine"}})
    with pytest.raises(RingmasterError, match="other folders"):
        parse(host(**FOLDERS), output, heard_at=1000.0)
    assert parse(host(**{**FOLDERS, which: "/mine"}), output, heard_at=1000.0).uid == 1000, (
        "where the inventory says so"
    )


def test_what_a_node_tells_is_fit_to_be_shown_and_used() -> None:
    read = answer(
        user="ops\x1b[2J",
        devices=["/dev/infiniband/uverbs0", "/dev/gdrdrv", "/dev/sda", "/dev/infiniband/../mem", "/dev/infiniband/a:b"],
        comm_env={"NCCL_NSOCKS_PERTHREAD": 4},
    )
    assert read.user == "ops[2J"
    assert read.devices == ("/dev/infiniband/uverbs0", "/dev/gdrdrv")
    assert read.comm_env == {"NCCL_NSOCKS_PERTHREAD": "4"}


@pytest.mark.parametrize("output", ["", "Welcome!\n{}", "[]", "{}", "null", '"yes"', "7"])
def test_no_answer_is_an_error_that_names_the_node(output: str) -> None:
    with pytest.raises(RingmasterError, match=r"node1: the probe failed \(sh: python3: not found\)") as raised:
        parse(host(), output, heard_at=0, stderr="sh: python3: not found")
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_the_command_names_the_inventorys_folders_and_the_job() -> None:
    program, _, _, source, asked = command(host(job_dir="/fast/jobs"), "mine")
    assert program == "python3"
    assert json.loads(asked) == {"job_dir": "/fast/jobs", "data_dir": "/var/lib/ringmaster/data", "job": "mine"}
    assert source == Path(probe.__file__).read_text()
