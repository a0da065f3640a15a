"""What a spawn-style script is given on each node, and which of the user's arguments can't be meant."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.facts import NodeFacts
from launcher.job.plan import NodePlan, Plan
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.job.spawn_start import given
from launcher.job.spawn_style import SpawnStyle
from launcher.on_node.rank import decoded
from tests.support.plans import facts, plan_for

STYLE = SpawnStyle(rank="--rank", nodes="--world-size", url="--init-method", starts=True)


def two(**changed: Any) -> list[NodeFacts]:
    return [replace(each, address=f"10.0.0.{n}", **changed) for n, each in enumerate(facts(2), 1)]


def asked(*arguments: str, style: SpawnStyle | None = STYLE, **fields: Any) -> Request:
    script = Program(arguments=arguments, spawn=style, root=Path("/c"), script=Path("/c/x.py"))
    return Request(program=script, **fields)


def words(node: NodePlan) -> list[str]:
    return shlex.split(decoded(node.environment["RINGMASTER_ARGUMENTS"]))


def test_each_node_is_given_what_the_user_left_open() -> None:
    plan = plan_for(two(gpus=("0", "1")), asked("--lr", "0.1"))
    assert [node.ranks for node in plan.nodes] == [1, 1]
    for number, node in enumerate(plan.nodes):
        filled = [f"--rank={number}", "--world-size=2", "--init-method=tcp://10.0.0.1:29501"]
        assert words(node) == [*filled, "--lr", "0.1"]
        assert node.environment["RINGMASTER_OWN_PORT"] == "29501"
    assert any(
        "once per node with --rank=<node> --world-size=2 --init-method=tcp://10.0.0.1:29501" in note
        for note in plan.notes
    )
    assert (plan.arguments, plan.launch_style, plan.ranks) == (("--lr", "0.1"), "spawn", None)
    assert plan.own_meeting


def test_what_the_user_gives_wins() -> None:
    plan = plan_for(two(), asked("--world-size", "8", "--init-method=tcp://10.0.0.1:4000"))
    assert words(plan.nodes[1]) == ["--rank=1", "--world-size", "8", "--init-method=tcp://10.0.0.1:4000"]


def test_one_node_is_given_them_too() -> None:
    (node,) = plan_for(two()[:1], asked("--rank", "0", "--init-method", "tcp://127.0.0.1:4000")).nodes
    assert words(node)[0] == "--world-size=1"


def test_an_address_of_version_6_and_other_options() -> None:
    style = replace(STYLE, address="--master_addr", port="--master_port")
    plan = plan_for([replace(each, address=f"fd00::{n}") for n, each in enumerate(two(), 1)], asked(style=style))
    assert words(plan.nodes[1])[2:] == [
        *("--init-method=tcp://[fd00::1]:29501", "--master_addr=fd00::1", "--master_port=29501"),
    ]


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (("--init-method", "tcp://127.0.0.1:4000"), "give tcp://10.0.0.1:4000"),
        (("--init-method=tcp://localhost:4000",), "names each node itself.*give tcp://10.0.0.1:4000"),
        (("--init-method", "tcp://[::1]:4000"), "give tcp://10.0.0.1:4000"),
        (("--init-method", "tcp://10.0.0.9:4000"), r"names 10.0.0.9, but all 2 nodes meet at the head, node1 \(10"),
        (("--init-method", "tcp://tcp://10.0.0.1:4000"), "is no tcp://host:port; give tcp://10.0.0.1:4000"),
        (("--init-method", "tcp://10.0.0.1"), "give tcp://10.0.0.1:29501"),
        (("--rank", "0"), "each of 2 nodes needs its own"),
        (("--rank=1",), "each of 2 nodes needs its own"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_what_is_right(arguments: Sequence[str], right: str) -> None:
    with pytest.raises(RingmasterError, match=right) as raised:
        plan_for(two(), asked(*arguments))
    assert raised.value.exit_code == ExitCode.USAGE


def test_an_address_given_twice_over_is_wrong_on_one_node_too() -> None:
    with pytest.raises(RingmasterError, match=r"give tcp://127.0.0.1:4000"):
        plan_for(two()[:1], asked("--init-method", "tcp://tcp://127.0.0.1:4000"))


@pytest.mark.parametrize("url", ["tcp://10.0.0.1:4000", "tcp://node1:4000", "env://", "file:///shared/x"])
def test_addresses_that_are_fine(url: str) -> None:
    assert words(plan_for(two(), asked("--init-method", url)).nodes[1])[-1] == url


def test_two_nodes_of_one_machine_meet_there() -> None:
    assert plan_for(facts(2), asked("--init-method", "tcp://localhost:4000")).world_size == 2


def test_unequal_gpu_counts_are_refused_where_ranks_are_counted_by_them() -> None:
    first, second = two(gpus=("0",))
    nodes = [replace(first, gpus=("0", "1", "2")), second]
    with pytest.raises(RingmasterError, match=r"node1 3, node2 1\).*GPUS=1") as raised:
        plan_for(nodes, asked())
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    for style in (replace(STYLE, starts=False), SpawnStyle(starts=True)):
        assert plan_for(nodes, asked(style=style)).world_size == 2


def test_one_machines_script_on_two_nodes_is_never_silent() -> None:
    style = SpawnStyle(starts=True, alone=True)
    assert any("each for itself" in note for note in plan_for(two(), asked(style=style)).notes)
    for ranks in (None, 2):
        assert any("a job of one node" in note for note in plan_for(two()[:1], asked(style=style, ranks=ranks)).notes)


def test_more_ranks_are_as_the_user_says_with_a_warning() -> None:
    plan = plan_for(two(), asked(ranks=3))
    assert (plan.world_size, words(plan.nodes[0])) == (6, [])
    assert any("RANKS=3 with a spawn-style script" in note for note in plan.notes)
    assert not plan.own_meeting
    assert not any("started once per node with" in note for note in plan.notes)


def test_the_inventorys_ranks_are_for_other_scripts() -> None:
    assert plan_for(facts(2, ranks_per_node=4), asked()).world_size == 2


def test_placeholders_differ_by_node() -> None:
    arguments = ("--rank", "{node_rank}", "--to={init_method}", "{nodes} {head} {port}", "{DATA_DIR}/x", "${x}")
    plan = plan_for(two(), asked(*arguments, placeholders=True))
    for number, node in enumerate(plan.nodes):
        assert words(node)[2:] == [
            *("--rank", str(number), "--to=tcp://10.0.0.1:29501", "2 10.0.0.1 29501", "/data/x", "${x}"),
        ]
    assert plan.arguments == arguments
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))).placeholders


@pytest.mark.parametrize(("word", "own"), [("{init_method}", True), ("--port={port}", True), ("{head}", False)])
def test_a_program_that_is_told_a_port_of_its_own_meets_there(word: str, own: bool) -> None:
    """Under torchrun's variables torch would wait at any address for torchrun's store."""
    for placeholders in (True, False):
        plan = plan_for(two(), asked(word, style=None, placeholders=placeholders))
        assert ("RINGMASTER_OWN_PORT" in plan.nodes[1].environment) == (own and placeholders)


def test_without_placeholders_every_byte_is_kept() -> None:
    plan = plan_for(two(), asked("{node_rank}", "{nodez}", style=None))
    assert words(plan.nodes[1]) == ["{node_rank}", "{nodez}"]
    assert "--init-method" not in plan.nodes[0].environment["RINGMASTER_ARGUMENTS"]


def test_a_switch_for_nothing_is_noted() -> None:
    noted = [plan_for(two(), asked(word, placeholders=True)).notes for word in ("x", "{nodes}")]
    assert [any("none to fill in" in note for note in notes) for notes in noted] == [True, False]


def test_an_older_plan_knows_nothing_of_it() -> None:
    stored = plan_for(two(), asked("x")).as_json()
    del stored["placeholders"]
    assert not Plan.from_json(json.loads(json.dumps(stored))).placeholders


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ((), None),
        (("--rank",), None),
        (("--rank", "1", "--rank=2"), "2"),
        (("--ranks", "1"), None),
        (("--", "--rank", "1"), None),
    ],
)
def test_what_an_option_is_given(arguments: Sequence[str], value: str | None) -> None:
    assert given(STYLE, "--rank", arguments) == value


def test_all_names_of_an_option_count() -> None:
    style = SpawnStyle(rank="--nr", nodes="--nodes", synonyms=frozenset({("-n", "--nodes"), ("-nr", "--nr")}))
    with pytest.raises(RingmasterError, match=r"^ARGS: --nr 0 would be every node's number"):
        plan_for(two(), asked("-nr", "0", style=style))
    plan = plan_for(two(), asked("-n2", "-g", "1", style=style))
    assert [words(node) for node in plan.nodes] == [["--nr=0", "-n2", "-g", "1"], ["--nr=1", "-n2", "-g", "1"]]
    assert given(style, "--nodes", ["-n", "3", "-nr=1"]) == "3"
