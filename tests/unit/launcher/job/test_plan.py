"""Plans are data: equal requests on equal facts give equal plans."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.rank_variables import name_problem
from launcher.job.container import ContainerFacts
from launcher.job.environment import TUNABLE
from launcher.job.plan import Plan, make_plan
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.on_node.rank import command, decoded
from tests.support.plans import FACTS, PLACES, cluster_facts, facts, plan_for, request


def test_two_cpu_nodes() -> None:
    first, second = plan_for(facts(2)).nodes
    assert first.argv == (
        *("/bin/torchrun", "--nnodes=2", "--nproc-per-node=1", "--node-rank=0", "--master-addr=127.0.0.1"),
        *("--master-port=29500", "--local-addr=127.0.0.1", "--no-python", "/bin/python", "-IS", "/launcher/rank.py"),
    )
    assert second.argv[3] == "--node-rank=1"
    assert (first.first_rank, second.first_rank) == (0, 1)
    assert first.environment["OMP_NUM_THREADS"] == "4", "eight cores, two ranks on the machine"
    assert first.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert first.environment["NCCL_SOCKET_IFNAME"] == "=lo"
    assert first.environment["RINGMASTER_PROGRAM"] == "/bin/python -u -m trainer"
    assert first.environment["CUDA_VISIBLE_DEVICES"] == ""


def test_equal_requests_give_equal_plans_that_survive_json() -> None:
    one, other = plan_for(facts(3)), plan_for(facts(3))
    assert one == other
    assert json.loads(json.dumps(one.as_json()))["nodes"][2]["name"] == "node3"


def test_what_the_user_set_wins_over_the_default_and_the_inventory_over_both() -> None:
    user_request = request(environment={"OMP_NUM_THREADS": "3", "HOME": "/home/x"})
    environment = plan_for(facts(1, comm_env={"NCCL_DEBUG": "INFO"}), user_request).nodes[0].environment
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert "HOME" not in environment


def test_the_jobs_own_variables_are_nobodys_to_override() -> None:
    nodes = facts(1, comm_env={"RUN_DIR": "/x", "RINGMASTER_NODE": "y"})
    environment = plan_for(nodes).nodes[0].environment
    assert (environment["RUN_DIR"], environment["RINGMASTER_NODE"]) == ("/runs/job", "node1")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
def test_arguments_reach_the_environment_byte_for_byte(arguments: list[str]) -> None:
    environment = plan_for(facts(1), request(*arguments)).nodes[0].environment
    assert shlex.split(decoded(environment["RINGMASTER_ARGUMENTS"])) == arguments


class TestBackend:
    def test_a_gpu_for_every_rank_is_nccl(self) -> None:
        nodes = [replace(fact, gpus=(str(number),)) for number, fact in enumerate(facts(2))]
        assert plan_for(nodes).backend == "nccl"
        assert plan_for(nodes).nodes[1].environment["CUDA_VISIBLE_DEVICES"] == "1"

    def test_a_shared_gpu_is_gloo_and_noted(self) -> None:
        plan = plan_for(facts(2, gpus=("0",)))
        assert plan.backend == "gloo"
        assert any("share" in note for note in plan.notes)
        assert plan.nodes[1].environment["RINGMASTER_GPUS"] == "1", "gloo because two ranks share the GPU, which counts"

    def test_equal_device_numbers_on_two_machines_are_two_gpus(self) -> None:
        nodes = [replace(facts(1, gpus=("0",))[0], name=f"n{i}", address=f"10.0.0.{i}") for i in (1, 2)]
        assert plan_for(nodes).backend == "nccl"

    def test_more_ranks_than_gpus_is_gloo(self) -> None:
        assert plan_for(facts(1, gpus=("0",), ranks_per_node=2)).backend == "gloo"

    def test_nccl_asked_for_without_gpus_is_refused(self) -> None:
        with pytest.raises(RingmasterError, match="NCCL needs one for each") as raised:
            plan_for(facts(2, backend="nccl"))
        assert raised.value.exit_code == ExitCode.USAGE

    def test_the_inventorys_gloo_is_kept(self) -> None:
        plan = plan_for(facts(1, gpus=("0",), backend="gloo"))
        assert (plan.backend, plan.backend_chosen) == ("gloo", True)
        assert plan.nodes[0].environment["RINGMASTER_GPUS"] == "0", "gloo by choice: the GPU may be missing"

    def test_two_backends_are_refused(self) -> None:
        with pytest.raises(RingmasterError, match="choose one"):
            plan_for([*facts(1, backend="gloo"), *facts(1)])


class TestRanks:
    def test_unequal_gpu_counts_are_planned_and_noted(self) -> None:
        first, second = facts(2)
        plan = plan_for([replace(first, gpus=("0", "1")), replace(second, gpus=("2",))])
        assert [node.ranks for node in plan.nodes] == [2, 1]
        assert [node.first_rank for node in plan.nodes] == [0, 2]
        assert any("unequal" in note for note in plan.notes)


class TestVariablesOfTheJob:
    def test_they_win_over_the_inventory_the_nodes_and_the_shell(self) -> None:
        fields = {"variables": {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_1", "OMP_NUM_THREADS": "3", "NEW": ""}}
        user_request = request(environment={"OMP_NUM_THREADS": "2"}, **fields)
        nodes = cluster_facts(1)
        nodes = [replace(nodes[0], settings={"comm_env": {"NCCL_DEBUG": "WARN"}})]
        for node in (*plan_for(nodes, user_request).nodes, *plan_for(facts(1), user_request).nodes):
            assert fields["variables"].items() <= node.environment.items()

    def test_a_plan_knows_them_and_an_older_one_says_nothing(self) -> None:
        stored = plan_for(facts(1), request(variables={"NCCL_DEBUG": "INFO"})).as_json()
        assert Plan.from_json(json.loads(json.dumps(stored))).variables == {"NCCL_DEBUG": "INFO"}
        del stored["variables"]
        assert Plan.from_json(json.loads(json.dumps(stored))).variables == {}

    def test_whatever_else_a_plan_sets_is_refused_as_theirs(self) -> None:
        script = Program(arguments=(), root=Path("/c"), script=Path("/c/x.py"), local_rank_flag="--local-rank")
        places = replace(PLACES, own_data=Path("/own"), secrets=Path("/secrets"))
        plans = [
            make_plan("job", Request(program=script, ranks=1), nodes, places, 29500, resumes=True)
            for nodes in (facts(1), cluster_facts(1), cluster_facts(1, ("0",)))
        ]
        tuning = {*FACTS.comm_env, *TUNABLE, "TORCH_DIST_USE_NCCL2"}
        for name in {name for plan in plans for name in plan.nodes[0].environment} - tuning:
            assert name_problem(name), f"{name}: the plan would silently win over ENV"


def test_the_users_data_is_given_to_their_script_and_never_written_to_by_the_trainer() -> None:
    places, user_request = replace(PLACES, own_data=Path("/own")), request(data=Path("/own"))
    theirs = replace(user_request, program=Program(arguments=(), root=Path("/home"), script=Path("/home/my script.py")))
    environment = make_plan("job", theirs, facts(1), places, 29500).nodes[0].environment
    assert environment["DATA_DIR"] == "/own"
    assert environment["RINGMASTER_PROGRAM"] == "/bin/python -u '/code/my script.py'", "as the node sees it"
    environment = make_plan("job", user_request, facts(1), places, 29500).nodes[0].environment
    assert (environment["DATA_DIR"], environment["RINGMASTER_DATA"]) == ("/data", "/own")


def test_a_resumed_job_must_not_start_from_scratch() -> None:
    plan = make_plan("job", request(), facts(1), PLACES, 29500, resumes=True)
    assert plan.nodes[0].environment["RINGMASTER_RESUME"] == "1"


@given(st.lists(st.text(), max_size=3), st.text())
def test_a_plan_comes_back_from_its_file(arguments: list[str], note: str) -> None:
    user_request = request(*arguments, data=Path("/own data"))
    plan = replace(plan_for(facts(2, ("0",)), user_request), notes=(note,), code="hash")
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


@pytest.mark.parametrize("change", [{"later": 1}, {"nodes": [{}]}, {"nodes": None}])
def test_a_plan_of_another_version_is_not_guessed_at(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        Plan.from_json({**plan_for(facts(1)).as_json(), **change})


@pytest.mark.parametrize("name", ["", "..", "../home", "/etc", "a/b", ".hidden", "-x", "a\nb", "a b", "x" * 254])
@pytest.mark.parametrize("whose", ["job", "node"])
def test_names_that_would_be_paths_here_are_refused(name: str, whose: str) -> None:
    """A plan may come from a node: its names become those of files here."""
    stored = plan_for(facts(2)).as_json()
    if whose == "job":
        stored["name"] = name
    else:
        stored["nodes"][1]["name"] = name
    with pytest.raises(ValueError, match="names that can't be"):
        Plan.from_json(stored)


def test_two_nodes_of_one_name_are_refused() -> None:
    stored = plan_for(facts(2)).as_json()
    stored["nodes"][1]["name"] = "node1"
    with pytest.raises(ValueError, match="names that can't be"):
        Plan.from_json(stored)


@pytest.mark.parametrize("name", ["训练", "gpu-1.rack+2", "7", "x" * 100])
def test_names_that_people_give_come_back(name: str) -> None:
    plan = replace(plan_for(facts(1)), name=name)
    plan = replace(plan, nodes=(replace(plan.nodes[0], name=name),))
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_words_that_are_not_utf8_reach_the_rank_as_they_are() -> None:
    words = ("--out", "caf\udce9 x")
    program = Program(arguments=words, root=Path("/home/u"), script=Path("/home/u/tr\udce9.py"))
    environment = plan_for(facts(1), Request(program=program)).nodes[0].environment
    "".join(environment.values()).encode()
    assert command(dict(environment)) == ["/bin/python", "-u", "/code/tr\udce9.py", *words]


def test_secrets_are_a_path_and_nothing_more() -> None:
    places = replace(PLACES, secrets=Path("/home/u/secrets"))
    environment = make_plan("job", request(), facts(1), places, 29500).nodes[0].environment
    assert environment["RINGMASTER_SECRETS"] == "/home/u/secrets"
    assert "RINGMASTER_SECRETS" not in plan_for(facts(1)).nodes[0].environment


class TestOneProcessPerNode:
    SCRIPT = Program(arguments=(), root=Path("/checkout"), script=Path("/checkout/spawns.py"))

    def test_a_script_that_starts_its_own_is_started_once_and_has_a_port_for_them(self) -> None:
        user_request = Request(program=self.SCRIPT, ranks=1)
        plan = plan_for([replace(facts(1, gpus=("0", "1"))[0], address="10.0.0.1")], user_request)
        node = plan.nodes[0]
        assert (node.ranks, node.devices, plan.backend, plan.ranks) == (1, ("0", "1"), "nccl", 1)
        assert "--nproc-per-node=1" in node.argv
        assert node.environment["RINGMASTER_OWN_PORT"] == "29501"
        assert node.environment["OMP_NUM_THREADS"] == "4", "eight cores, and a process to be expected for each GPU"
        assert any("one process per node" in note for note in plan.notes)

    def test_the_resumed_plan_knows_and_an_older_one_says_nothing(self) -> None:
        stored = plan_for(facts(1), Request(program=self.SCRIPT, ranks=1)).as_json()
        assert Plan.from_json(json.loads(json.dumps(stored))).ranks == 1
        del stored["ranks"]
        assert Plan.from_json(json.loads(json.dumps(stored))).ranks is None

    def test_torchs_nccl_does_not_put_all_of_them_on_the_gpu_of_local_rank(self) -> None:
        name, nodes = "TORCH_DIST_USE_NCCL2", facts(1, gpus=("0", "1"))
        spawns = Request(program=self.SCRIPT, ranks=1)
        assert plan_for(nodes, spawns).nodes[0].environment[name] == "0"
        assert plan_for(nodes, replace(spawns, variables={name: "1"})).nodes[0].environment[name] == "1"
        assert plan_for(facts(1, comm_env={name: "1"}), spawns).nodes[0].environment[name] == "1"
        for others in (Request(program=self.SCRIPT), Request(program=self.SCRIPT, ranks=2), request(ranks=1)):
            assert name not in plan_for(nodes, others).nodes[0].environment

    @pytest.mark.parametrize("ranks", [None, 2])
    def test_other_scripts_meet_as_torchrun_says(self, ranks: int | None) -> None:
        user_request = Request(program=self.SCRIPT, ranks=ranks)
        assert "RINGMASTER_OWN_PORT" not in plan_for(facts(1), user_request).nodes[0].environment

    def test_ranks_win_over_the_inventory(self) -> None:
        assert plan_for(facts(1, ranks_per_node=2), request(ranks=3)).world_size == 3


@pytest.mark.parametrize(
    ("strategy", "ranks", "devices"), [("ddp", 2, ("0", "1")), ("dp", 1, ("0", "1")), ("none", 1, ("0",))]
)
def test_the_trainers_strategy_decides_on_ranks_and_gpus(strategy: str, ranks: int, devices: tuple[str, ...]) -> None:
    node = plan_for(facts(1, gpus=("0", "1")), request(strategy=strategy)).nodes[0]
    assert (node.ranks, node.devices) == (ranks, devices)
    assert node.environment["CUDA_VISIBLE_DEVICES"] == ",".join(devices)


def test_one_gpu_of_several_is_asked_of_the_engine_by_its_id() -> None:
    container = ContainerFacts(
        image="i", digest="d", user="1:1", all_gpus=True, comm_env={}, memory=1 << 30, job_dir="/jobs", data_dir="/data"
    )
    node = replace(facts(1, gpus=("0", "1"))[0], container=container)
    planned = plan_for([node], request(strategy="none")).nodes[0].container
    assert planned is not None
    assert planned.gpus == "0"


class TestModule:
    """A module's modules are found in its code root; torchrun itself must not find them."""

    MODULE = Program(
        arguments=("--x",),
        root=Path("/home/u/my repo"),
        module="pkg.train",
        module_file=Path("/home/u/my repo/src/pkg/train.py"),
        importable=("", "src"),
    )

    def test_the_rank_is_started_as_a_module_below_its_code_root(self) -> None:
        plan = plan_for(facts(2), Request(program=self.MODULE, data=Path("/d")))
        environment = plan.nodes[1].environment
        assert environment["RINGMASTER_PROGRAM"] == "/bin/python -u -m pkg.train"
        assert "PYTHONPATH" not in environment and plan.nodes[1].working_folder == "/code"
        words = {**environment, "PYTHONPATH": "/theirs:/more"}
        command(words)
        assert words["PYTHONPATH"] == "/code:/code/src:/theirs:/more"
        assert "RINGMASTER_CODE_PATH" not in words
        assert "module pkg.train: src/pkg/train.py in /home/u/my repo" in plan.notes

    def test_a_root_that_is_not_utf8_reaches_the_rank(self) -> None:
        places = replace(PLACES, code=Path("/home/caf\udce9"))
        plan = make_plan("job", Request(program=self.MODULE), facts(1), places, 29500)
        words = dict(plan.nodes[0].environment)
        "".join(words.values()).encode()
        command(words)
        assert words["PYTHONPATH"] == "/home/caf\udce9:/home/caf\udce9/src"

    def test_a_plan_knows_it_and_an_older_one_says_nothing(self) -> None:
        stored = plan_for(facts(1), Request(program=self.MODULE)).as_json()
        again = Plan.from_json(json.loads(json.dumps(stored)))
        assert (again.script, again.module, again.code_root) == (None, "pkg.train", "/home/u/my repo")
        assert not again.bundled
        del stored["module"], stored["code_root"]
        assert Plan.from_json(json.loads(json.dumps(stored))).bundled

    def test_a_script_is_given_no_more_than_torchrun_gives_it_unless_code_is_named(self) -> None:
        script = Program(arguments=(), root=Path("/r"), script=Path("/r/x.py"))
        plan = plan_for(facts(1), Request(program=script))
        assert plan.code_root is None and "RINGMASTER_CODE_PATH" not in plan.nodes[0].environment
        plan = plan_for(facts(1), Request(program=replace(script, importable=("",))))
        assert (plan.code_root, plan.nodes[0].environment["RINGMASTER_CODE_PATH"]) == ("/r", "/code")

    def test_on_a_cluster_its_code_travels_also_where_the_module_is_the_images(self) -> None:
        theirs = replace(self.MODULE, module="torchvision.train", module_file=None)
        plan = make_plan("job", Request(program=theirs), cluster_facts(1), PLACES, 29500)
        container = plan.nodes[0].container
        assert container and "/job/code" in {bind.target for bind in container.binds}
        assert "torchvision.train comes from where the ranks run, not from your code;" in plan.notes[0]
