"""A container as data: what is rendered for the SDK, for a shell and for plan.json is the same."""

import argparse
import json
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.job import container
from launcher.job.container import Container, arguments, command_line, describe, node_folder
from launcher.job.plan import NodePlan, Plan
from launcher.on_node.rank import decoded
from tests.support.plans import FACTS, cluster_facts, cluster_plan, plan_for, request

HOSTILE = ("--", "-x", "a b", "'\"", "$(touch /tmp/no)", "`id`", ";", "\n", "ü\u202e", "${local_rank}", "$$", "")


def rendered(node: NodePlan) -> dict[str, Any]:
    assert node.container is not None
    create: dict[str, Any] = arguments(node.container, node.argv, node.working_folder, node.environment)
    return create


def read_back(line: str) -> dict[str, Any]:
    """Return what docker's own command line would make of `line`, in the SDK's terms."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--name", "--gpus", "--network", "--shm-size", "--log-driver", "--user", "--userns", "--workdir"):
        parser.add_argument(flag)
    for flag in ("--label", "--ulimit", "--device", "--mount", "--log-opt", "--cap-drop", "--security-opt", "--env"):
        parser.add_argument(flag, action="append", default=[])
    for flag in ("--detach", "--init", "--no-healthcheck"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--entrypoint")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    docker, run, *words = shlex.split(line)
    assert (docker, run) == ("docker", "run")
    options = parser.parse_args(words)
    assert options.detach
    own_start = {"entrypoint": [options.entrypoint]} if options.entrypoint else {}
    own_start |= {"init": True} if options.init else {}
    own_start |= {"healthcheck": {"test": ["NONE"]}} if options.no_healthcheck else {}
    return {
        **own_start,
        "image": options.image,
        "command": options.command,
        "name": options.name,
        "labels": dict(label.split("=", 1) for label in options.label),
        "working_dir": options.workdir,
        "environment": dict(each.split("=", 1) for each in options.env),
        "user": options.user,
        "device_requests": _gpus(options.gpus),
        "network_mode": options.network,
        "ulimits": [_ulimit(each) for each in options.ulimit],
        "shm_size": options.shm_size,
        "devices": [f"{path}:{path}:rwm" for path in options.device],
        "mounts": [_mount(each) for each in options.mount],
        "log_config": {"Type": options.log_driver, "Config": dict(each.split("=", 1) for each in options.log_opt)},
        "cap_drop": options.cap_drop,
        "security_opt": options.security_opt,
        "userns_mode": options.userns,
    }


def _gpus(value: str | None) -> list[dict[str, Any]]:
    if value is None:
        return []
    ids = [] if value == "all" else value.strip('"').removeprefix("device=").split(",")
    assert value == "all" or value.startswith('"device=' if len(ids) > 1 else "device="), "or docker splits at commas"
    count = -1 if value == "all" else 0
    return [{"Driver": "", "Count": count, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}}]


def _ulimit(value: str) -> dict[str, Any]:
    name, limits = value.split("=")
    soft, hard = limits.split(":")
    return {"Name": name, "Soft": int(soft), "Hard": int(hard)}


def _mount(value: str) -> dict[str, Any]:
    fields = dict(each.split("=") if "=" in each else (each, True) for each in value.split(","))
    return {
        "Type": fields["type"],
        "Source": fields["source"],
        "Target": fields["target"],
        "ReadOnly": fields.get("readonly", False),
    }


VARIANTS: list[dict[str, Any]] = [
    {},
    {"gpus": ("0", "1"), "all_gpus": True},
    {"gpus": ("0", "3"), "script": True},
    {"gpus": ("2",), "secrets": True, "infiniband": ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")},
    {"script": True, "secrets": True, "certificates": True, "memlock": 65536},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_command_line_says_what_the_sdk_is_given(variant: dict[str, Any]) -> None:
    for node in cluster_plan(arguments=HOSTILE, **variant).nodes:
        assert node.container is not None
        line = command_line(node.container, node.argv, node.working_folder, node.environment)
        assert read_back(line) == rendered(node)


@pytest.mark.parametrize("variant", VARIANTS)
def test_plan_json_says_what_the_sdk_is_given(variant: dict[str, Any]) -> None:
    plan = cluster_plan(arguments=HOSTILE, **variant)
    again = Plan.from_json(json.loads(json.dumps(plan.as_json())))
    assert again == plan
    assert [rendered(node) for node in again.nodes] == [rendered(node) for node in plan.nodes]


def test_a_container_is_given_this_and_nothing_else() -> None:
    """A privilege would have to be added here too."""
    assert rendered(cluster_plan(gpus=("0", "1"), script=True).nodes[1]) == {
        "image": "sha256:0123",
        "command": list(cluster_plan(gpus=("0", "1"), script=True).nodes[1].argv),
        "name": "ringmaster-job",
        "labels": {"ringmaster.job": "job", "ringmaster.node": "node2", "ringmaster.generation": "0"},
        "working_dir": "/job/code",
        "environment": dict(cluster_plan(gpus=("0", "1"), script=True).nodes[1].environment),
        "user": "1000:1000",
        "device_requests": [
            {"Driver": "", "Count": 0, "DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]], "Options": {}}
        ],
        "network_mode": "host",
        "ulimits": [
            {"Name": "memlock", "Soft": -1, "Hard": -1},
            {"Name": "stack", "Soft": 67108864, "Hard": 67108864},
        ],
        "shm_size": "32768m",
        "devices": [],
        "mounts": [
            {"Type": "bind", "Source": source, "Target": target, "ReadOnly": target == "/job/data/own"}
            for source, target in (
                ("/var/jobs/job/run", "/job/run"),
                ("/var/jobs/job/home", "/job/home"),
                ("/var/jobs/.cache", "/job/cache"),
                ("/var/data", "/job/data"),
                ("/var/data/own", "/job/data/own"),
                ("/var/jobs/job/code", "/job/code"),
            )
        ],
        "log_config": {"Type": "json-file", "Config": {"max-size": "100m", "max-file": "5"}},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "userns_mode": "host",
    }


def described(gpus: tuple[str, ...] = (), *, code: bool = False, secrets: bool = False, **changed: Any) -> Container:
    return describe("job", "node1", replace(FACTS, **changed), gpus, code=code, secrets=secrets)


@pytest.mark.parametrize(
    ("gpus", "all_gpus", "expected"),
    [((), False, ""), ((), True, ""), (("0",), False, "0"), (("0", "2"), False, "0,2"), (("0", "2"), True, "all")],
)
def test_gpus(gpus: tuple[str, ...], all_gpus: bool, expected: str) -> None:
    assert described(gpus, all_gpus=all_gpus).gpus == expected


def targets(one: Container, *, read_only: bool = False) -> set[str]:
    return {bind.target for bind in one.binds if bind.read_only or not read_only}


def test_only_what_is_asked_for_is_mounted() -> None:
    always = {"/job/run", "/job/home", "/job/cache", "/job/data", "/job/data/own"}
    assert targets(described()) == always
    assert targets(described(code=True)) == always | {"/job/code"}
    assert targets(described(secrets=True)) == always | {"/job/secrets"}
    assert targets(described(), read_only=True) == {"/job/data/own"}
    full = described(code=True, secrets=True, certificates=True)
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    assert targets(full, read_only=True) == {"/job/secrets", "/job/data/own", certificates}
    assert node_folder(full, container.RUN) == "/var/jobs/job/run"


def test_a_folder_inside_another_is_mounted_after_it() -> None:
    order = [bind.target for bind in described(code=True, secrets=True).binds]
    assert order.index("/job/data/own") > order.index("/job/data")


ALLOWED = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
"""What Docker's engine accepts as a container's name."""


@pytest.mark.parametrize("name", ["2026-01-01_10-00-00_2", "a", "A.b-c_d"])
def test_a_container_is_called_as_its_job_where_the_engine_allows_it(name: str) -> None:
    assert cluster_plan(name=name).nodes[0].container.name == f"ringmaster-{name}"  # type: ignore[union-attr]


def test_a_name_that_no_engine_allows_becomes_one_that_it_does() -> None:
    jobs = ("训练", "größer", "größer2", "a+b", "ab")
    containers = [cluster_plan(name=job).nodes[0].container for job in jobs]
    assert all(each and ALLOWED.fullmatch(each.name) for each in containers)
    assert len({each.name for each in containers if each}) == len(jobs), "two jobs' containers never share a name"
    assert [each.labels["ringmaster.job"] for each in containers if each] == list(jobs), "jobs are found by these"
    again = cluster_plan(name=jobs[0]).nodes[1].container
    assert again and containers[0] and again.name == containers[0].name, "no second one of the same job can be made"


def test_secrets_are_named_by_their_file_alone() -> None:
    environment = cluster_plan(secrets=True).nodes[0].environment
    assert environment["RINGMASTER_SECRETS"] == "/job/secrets"
    assert "RINGMASTER_SECRETS" not in cluster_plan().nodes[0].environment


def test_without_gpus_none_is_seen_even_if_the_engine_hands_them_out() -> None:
    environment = cluster_plan().nodes[0].environment
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    environment = cluster_plan(gpus=("3",)).nodes[0].environment
    assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"} & set(environment), (
        "the engine chooses, numbered anew"
    )


def test_a_users_script_has_its_gpus_checked_for_it() -> None:
    checked = cluster_plan(gpus=("3",), script=True).nodes[0].environment
    assert (checked["RINGMASTER_CHECK_GPUS"], checked["RINGMASTER_CUDA"]) == ("1", "13.2")
    assert "RINGMASTER_CHECK_GPUS" not in cluster_plan(gpus=("3",)).nodes[0].environment, "the trainer looks itself"
    assert "RINGMASTER_CHECK_GPUS" not in cluster_plan(script=True).nodes[0].environment, "none was planned"


def test_the_interface_of_the_plan_wins_over_the_nodes_comm_env() -> None:
    environment = cluster_plan().nodes[0].environment
    assert (environment["NCCL_IB_HCA"], environment["GLOO_SOCKET_IFNAME"]) == ("mlx5_0", "lo")
    assert environment["HOME"] == "/job/home"


def test_an_address_that_gloo_finds_only_by_the_host_name() -> None:
    nodes = [replace(fact, by_host_name=True) for fact in cluster_facts(2)]
    environment = plan_for(nodes).nodes[0].environment
    assert "GLOO_SOCKET_IFNAME" not in environment, "neither the plan's nor the node's: it would find another address"
    assert environment["NCCL_SOCKET_IFNAME"] == "=lo"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
def test_arguments_travel_in_the_environment_byte_for_byte(words: list[str]) -> None:
    for node in cluster_plan(1, arguments=tuple(words)).nodes:
        assert node.container is not None
        line = command_line(node.container, node.argv, node.working_folder, node.environment)
        for rendering in (rendered(node), read_back(line)):
            assert shlex.split(decoded(rendering["environment"]["RINGMASTER_ARGUMENTS"])) == words
            assert rendering["command"] == list(node.argv), "torchrun would rewrite words there"


@pytest.mark.parametrize("word", ["caf\udce9", "hex:00", "hex:", "--name=\udcff\udcfe x"])
def test_words_whose_bytes_an_engine_would_not_keep_travel_as_hex(word: str) -> None:
    for node in cluster_plan(1, arguments=(word, "ü")).nodes:
        value = rendered(node)["environment"]["RINGMASTER_ARGUMENTS"]
        value.encode()  # as the engine's JSON does it
        assert shlex.split(decoded(value)) == [word, "ü"]


FOREIGN = {"site": "/opt/conda/lib/site-packages"}


@pytest.mark.parametrize("script", [False, True])
def test_a_foreign_image_starts_what_we_say_and_has_our_files_beside_it(script: bool) -> None:
    node = cluster_plan(2, ("0", "1"), script=script, **FOREIGN).nodes[1]
    create = rendered(node)
    assert node.container is not None
    assert read_back(command_line(node.container, node.argv, node.working_folder, node.environment)) == {
        **create,
        "mounts": [*map(dict, create["mounts"])],
    }
    assert [*create["entrypoint"], *create["command"]] == [*node.argv]
    assert create["init"] is True and create["healthcheck"] == {"test": ["NONE"]}
    brought = [bind for bind in node.container.binds if "/ours" in bind.source]
    assert [(bind.target, bind.read_only) for bind in brought] == [
        ("/opt/ringmaster", True),
        ("/opt/conda/lib/site-packages/ringmaster_exit.py", True),
        ("/opt/conda/lib/site-packages/ringmaster_exit.pth", True),
    ]
    assert node.environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert Plan.from_json(json.loads(json.dumps(cluster_plan(2, **FOREIGN).as_json()))) == cluster_plan(2, **FOREIGN)


def test_what_a_foreign_image_asks_for_of_the_driver_stays() -> None:
    node = cluster_plan(1, ("0",), **FOREIGN, capabilities="compute,utility,video").nodes[0]
    assert "NVIDIA_DRIVER_CAPABILITIES" not in node.environment


def test_what_of_the_driver_a_user_asks_for_wins_over_our_own_choice() -> None:
    wanted = {"NVIDIA_DRIVER_CAPABILITIES": "all"}
    (node,) = plan_for(cluster_facts(1, ("0",), **FOREIGN), request(variables=wanted)).nodes
    assert node.environment["NVIDIA_DRIVER_CAPABILITIES"] == "all"
    (fact,) = cluster_facts(1, ("0",), **FOREIGN)
    (node,) = plan_for([replace(fact, settings={"comm_env": wanted})]).nodes
    assert node.environment["NVIDIA_DRIVER_CAPABILITIES"] == "all", "the site's wins as well"


def test_our_own_image_starts_by_its_entry_point() -> None:
    assert not {"entrypoint", "init", "healthcheck"} & rendered(cluster_plan(1).nodes[0]).keys()
