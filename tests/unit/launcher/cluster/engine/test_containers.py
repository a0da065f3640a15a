"""Jobs' containers on a node; one of two launchers gives way. The engine is a fake."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.engine import containers
from launcher.cluster.engine.containers import STALE_S, JobContainer, in_the_way, parse, unix_time
from launcher.cluster.preflight.gpus import JobOnNode
from tests.support.cluster.engine import MOMENT, FakeEngine, job_container, refusal


def test_what_inspect_says_is_read() -> None:
    fake = FakeEngine(now=1.5)
    chosen = [{"Count": 0, "DeviceIDs": ["0", "2"]}, {"DeviceIDs": None}]
    container = parse(fake.inspected[fake.put("a", "exited", 137, chosen)])
    assert container == JobContainer(
        id="node1-a-0",
        job="a",
        node="node1",
        state="exited",
        created=MOMENT + 1.5,
        gpus=frozenset({"0", "2"}),
        exit_code=137,
        finished=MOMENT + 11.5,
    )
    assert parse(fake.inspected[fake.put("b", requests=[{"Count": -1, "DeviceIDs": []}])]).gpus is None
    runs = parse(fake.inspected[fake.put("c")])
    assert (runs.exit_code, runs.finished) == (None, None), "the engine says 0 until it has ended"
    older = fake.inspected[fake.put("d")]
    del older["Config"]["Labels"]["ringmaster.node"]
    assert parse(older).node == ""


@pytest.mark.parametrize(
    ("options", "parts", "says"),
    [
        (["name=seccomp,profile=default", "name=cgroupns"], ["Engine", "containerd"], ""),
        (["name=userns"], ["Engine"], ""),  # jobs' containers are started outside of that
        (["name=seccomp,profile=builtin", "name=rootless"], ["Engine", "rootlesskit"], "runs without root"),
        (
            ["name=rootless"],
            ["Podman Engine", "Conmon"],
            "is Podman, which runs no jobs: `sudo apt remove podman-docker`",
        ),
        (None, None, ""),
    ],
)
def test_an_engine_that_is_none_for_jobs(options: list[str] | None, parts: list[str] | None, says: str) -> None:
    version = {"Components": None if parts is None else [{"Name": part} for part in parts]}
    problem = containers.engine_problem({"SecurityOptions": options}, version)
    assert says in problem and bool(says) == bool(problem)


def test_a_moment_of_the_engine() -> None:
    assert unix_time("2026-01-01T00:00:01.25Z") == MOMENT + 1.25
    assert unix_time("2026-01-01T00:00:01Z") == MOMENT + 1
    assert unix_time("2026-01-01T00:00:01.000000001Z") >= unix_time("2026-01-01T00:00:01Z")


def test_the_oldest_comes_first_and_one_that_goes_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine()
    first = fake.put("a")
    fake.now = 1
    gone, last = fake.put("a"), fake.put("b")
    inspect = fake.inspect_container

    def look(container: str) -> Mapping[str, Any]:
        fake.inspected.pop(gone, None)
        return inspect(container)

    monkeypatch.setattr(fake, "inspect_container", look)
    assert [each.id for each in containers.find(fake)] == [first, last]  # type: ignore[arg-type]
    assert [each.id for each in containers.find(fake, "b")] == [last]  # type: ignore[arg-type]


def test_what_is_gone_or_going_counts_as_removed() -> None:
    fake: Any = FakeEngine()
    containers.remove(fake, "never")
    kept = fake.put("a")
    fake.refuses["remove"] = refusal(409)
    containers.remove(fake, kept)
    fake.refuses["remove"] = refusal(500)
    with pytest.raises(APIError):
        containers.remove(fake, kept)


@pytest.mark.parametrize("state", ["running", "paused", "exited"])
def test_what_runs_ends_at_once_also_what_is_frozen(state: str) -> None:
    fake: Any = FakeEngine()
    one = fake.put("a", state)
    containers.kill(fake, parse(fake.inspected[one]))
    assert fake.inspected[one]["State"]["Status"] == "exited"


def test_what_is_gone_counts_as_ended_and_a_refusal_does_not() -> None:
    fake: Any = FakeEngine()
    one = fake.put("a")
    container = parse(fake.inspected.pop(one))
    containers.kill(fake, container)
    fake.refuses["kill"] = refusal(500)
    with pytest.raises(APIError):
        containers.kill(fake, container)


@pytest.mark.parametrize(
    ("state", "age", "holds"),
    [
        ("running", 1e6, True),
        ("paused", 1e6, True),
        ("restarting", 1e6, True),
        ("created", STALE_S - 1, True),
        ("created", STALE_S + 1, False),
        ("exited", 1, False),
        ("dead", 1, False),
        ("removing", 1, False),
    ],
)
def test_who_holds_a_node(state: str, age: float, holds: bool) -> None:
    assert job_container(state=state).holds(age) is holds


def test_what_others_need_to_know() -> None:
    assert job_container(1).as_job_on_node == JobOnNode(name="job1", all_gpus=True)
    assert job_container(gpus=frozenset("20")).as_job_on_node.devices == ("0", "2")
    assert job_container(gpus=frozenset()).as_job_on_node == JobOnNode(name="job0")


MOMENTS = st.integers(0, 20).map(lambda tenth: MOMENT + tenth / 10)
GPUS = st.one_of(st.none(), st.frozensets(st.sampled_from("0123")))
ONE = st.tuples(MOMENTS, GPUS, st.integers(0, 20))


def refused(launches: Sequence[tuple[float, frozenset[str] | None, int]], started: int) -> list[bool]:
    """Return who gives way if each looks some tenths of a second after its own container was created.

    Args:
        started: bits; whose container runs already when others look.
    """
    all_of_them = [job_container(number, created, gpus=gpus) for number, (created, gpus, _) in enumerate(launches)]
    gives_way = []
    for ours, (created, _, later) in zip(all_of_them, launches, strict=True):
        visible = [
            replace(each, state="running") if started >> number & 1 and each is not ours else each
            for number, each in enumerate(all_of_them)
            if each.created <= created + later / 10
        ]
        gives_way.append(in_the_way(visible[::-1], ours) is not None)
    return gives_way


def conflict(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    return not (one and other and not one & other)


@given(launches=st.lists(ONE, min_size=1, max_size=4), started=st.integers(0, 15))
def test_whatever_the_order_of_looks_at_most_one_goes_on(launches: list[Any], started: int) -> None:
    gives_way = refused(launches, started)
    go_on = [gpus for (_, gpus, _), refuses in zip(launches, gives_way, strict=True) if not refuses]
    assert not any(conflict(one, other) for number, one in enumerate(go_on) for other in go_on[:number])
    oldest = min(range(len(launches)), key=lambda number: (launches[number][0], f"c{number}"))
    assert not gives_way[oldest], "never all of them"


@given(launches=st.tuples(ONE, ONE), started=st.integers(0, 3))
def test_of_two_one_gives_way_and_none_if_each_chose_gpus_of_its_own(launches: tuple[Any, Any], started: int) -> None:
    (_, one, _), (_, other, _) = launches
    assert sum(refused(launches, started)) == conflict(one, other)


def test_what_a_killed_launcher_left_is_not_in_the_way_for_ever() -> None:
    left, ours = job_container(0, 0), job_container(1, STALE_S + 1)
    assert in_the_way([left, ours], ours) is None
    assert in_the_way([replace(left, state="running"), ours], ours) is not None
    assert in_the_way([left, replace(ours, created=STALE_S - 1)], replace(ours, created=STALE_S - 1)) == left
