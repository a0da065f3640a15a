"""Plans are data: equal requests on equal facts give equal plans."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import plan
from launcher.errors import ExitCode, RingmasterError
from launcher.plan import NodeFacts, Places, Plan
from launcher.program import Program
from launcher.request import Request

PLACES = Places(
    run=Path("/runs/job"),
    data=Path("/data"),
    checkpoints=Path("/runs/job/checkpoints"),
    rank_program=Path("/launcher/rank.py"),
    python=Path("/bin/python"),
    torchrun=Path("/bin/torchrun"),
)


def facts(count: int, gpus: tuple[str, ...] = (), address: str = "127.0.0.1", **settings: Any) -> list[NodeFacts]:
    return [
        NodeFacts(
            name=f"node{number + 1}",
            runtime="process",
            address=address,
            interface="lo",
            gpus=gpus,
            cores=8,
            settings=settings,
        )
        for number in range(count)
    ]


def request(*arguments: str, **fields: Any) -> Request:
    return Request(
        program=Program(interpreter_words=("-u", "my script.py"), arguments=arguments, root=Path("/code")), **fields
    )


def made(nodes: list[NodeFacts], asked: Request | None = None) -> Plan:
    return plan.make_plan("job", asked or request(), nodes, PLACES, 29500)


def test_two_cpu_nodes() -> None:
    first, second = made(facts(2)).nodes
    assert first.argv == (
        *("/bin/torchrun", "--nnodes=2", "--nproc-per-node=1", "--node-rank=0", "--master-addr=127.0.0.1"),
        *("--master-port=29500", "--local-addr=127.0.0.1", "--no-python", "/bin/python", "-IS", "/launcher/rank.py"),
    )
    assert second.argv[3] == "--node-rank=1"
    assert (first.first_rank, second.first_rank) == (0, 1)
    assert first.environment["OMP_NUM_THREADS"] == "4", "eight cores, two ranks on the machine"
    assert first.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert first.environment["NCCL_SOCKET_IFNAME"] == "=lo"
    assert first.environment["RINGMASTER_PROGRAM"] == "/bin/python -u 'my script.py'"
    assert first.environment["CUDA_VISIBLE_DEVICES"] == ""


def test_equal_requests_give_equal_plans_that_survive_json() -> None:
    one, other = made(facts(3)), made(facts(3))
    assert one == other
    assert json.loads(json.dumps(one.as_json()))["nodes"][2]["name"] == "node3"


def test_what_the_user_set_wins_over_the_default_and_the_inventory_over_both() -> None:
    asked = request(environment={"OMP_NUM_THREADS": "3", "HOME": "/home/x"})
    environment = made(facts(1, comm_env={"NCCL_DEBUG": "INFO"}), asked).nodes[0].environment
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert "HOME" not in environment


def test_the_jobs_own_variables_are_nobodys_to_override() -> None:
    asked = facts(1, comm_env={"RUN_DIR": "/x", "RINGMASTER_NODE": "y"})
    environment = made(asked).nodes[0].environment
    assert (environment["RUN_DIR"], environment["RINGMASTER_NODE"]) == ("/runs/job", "node1")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
def test_arguments_reach_the_environment_byte_for_byte(arguments: list[str]) -> None:
    environment = made(facts(1), request(*arguments)).nodes[0].environment
    assert shlex.split(environment["RINGMASTER_ARGUMENTS"]) == arguments


class TestBackend:
    def test_a_gpu_for_every_rank_is_nccl(self) -> None:
        nodes = [replace(fact, gpus=(str(number),)) for number, fact in enumerate(facts(2))]
        assert made(nodes).backend == "nccl"
        assert made(nodes).nodes[1].environment["CUDA_VISIBLE_DEVICES"] == "1"

    def test_a_shared_gpu_is_gloo_and_said_aloud(self) -> None:
        planned = made(facts(2, gpus=("0",)))
        assert planned.backend == "gloo"
        assert any("share" in note for note in planned.notes)
        assert planned.nodes[1].environment["RINGMASTER_GPUS"] == "1", "gloo for want of GPUs: the one counts"

    def test_equal_device_numbers_on_two_machines_are_two_gpus(self) -> None:
        nodes = [replace(facts(1, gpus=("0",))[0], name=f"n{i}", address=f"10.0.0.{i}") for i in (1, 2)]
        assert made(nodes).backend == "nccl"

    def test_more_ranks_than_gpus_is_gloo(self) -> None:
        assert made(facts(1, gpus=("0",), ranks_per_node=2)).backend == "gloo"

    def test_nccl_asked_for_without_gpus_is_refused(self) -> None:
        with pytest.raises(RingmasterError, match="NCCL needs one for each") as raised:
            made(facts(2, backend="nccl"))
        assert raised.value.exit_code == ExitCode.USAGE

    def test_the_inventorys_gloo_is_kept(self) -> None:
        planned = made(facts(1, gpus=("0",), backend="gloo"))
        assert (planned.backend, planned.backend_chosen) == ("gloo", True)
        assert planned.nodes[0].environment["RINGMASTER_GPUS"] == "0", "gloo by choice: the GPU may be missing"

    def test_two_backends_are_refused(self) -> None:
        with pytest.raises(RingmasterError, match="choose one"):
            made([*facts(1, backend="gloo"), *facts(1)])


class TestRanks:
    def test_unequal_gpu_counts_are_planned_and_said_aloud(self) -> None:
        first, second = facts(2)
        planned = made([replace(first, gpus=("0", "1")), replace(second, gpus=("2",))])
        assert [node.ranks for node in planned.nodes] == [2, 1]
        assert [node.first_rank for node in planned.nodes] == [0, 2]
        assert any("unequal" in note for note in planned.notes)


def test_the_users_data_is_given_to_their_script_and_never_written_to_by_the_trainer() -> None:
    theirs = replace(request(data=Path("/own")), program=replace(request().program, script=Path("/code/x.py")))
    assert made(facts(1), theirs).nodes[0].environment["DATA_DIR"] == "/own"
    environment = made(facts(1), request(data=Path("/own"))).nodes[0].environment
    assert (environment["DATA_DIR"], environment["RINGMASTER_DATA"]) == ("/data", "/own")


def test_a_resumed_job_must_not_start_from_scratch() -> None:
    planned = plan.make_plan("job", request(), facts(1), PLACES, 29500, resumes=True)
    assert planned.nodes[0].environment["RINGMASTER_RESUME"] == "1"
