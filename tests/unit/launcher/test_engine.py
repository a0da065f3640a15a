"""What an engine is asked about jobs' containers; of two launchers one gives way. The engine is a fake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, NotFound
from hypothesis import given
from hypothesis import strategies as st

from launcher import engine
from launcher.engine import STALE_S, JobContainer, in_the_way, parse, unix_time

MOMENT = 1_767_225_600.0  # 2026-01-01


def stamp(seconds: float) -> str:
    """The engine's way to write a moment."""
    return datetime.fromtimestamp(MOMENT + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def refusal(status: int, why: str = "no") -> APIError:
    """What the SDK raises where the engine says no."""
    return APIError("refused", response=SimpleNamespace(status_code=status), explanation=why)  # type: ignore[arg-type]


@dataclass
class FakeEngine:
    """An engine that has containers, and what they print, in memory; both `DockerClient` and its `api`."""

    name: str = "node1"
    now: float = 0.0
    inspected: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    refuses: dict[str, Exception] = field(default_factory=dict)
    """By verb."""
    printed: list[bytes] = field(default_factory=list)
    """What the exec'd program prints, one after the other."""

    @property
    def api(self) -> "FakeEngine":
        return self

    @property
    def containers_of(self) -> list[str]:
        return [each["Config"]["Labels"]["ringmaster.job"] for each in self.inspected.values()]

    def put(self, job: str, state: str = "running", code: int = 0, requests: Sequence[Any] = ()) -> str:
        """Have a container of a job, made now."""
        made = f"{self.name}-{job}-{len(self.inspected)}"
        self.inspected[made] = {
            "Id": made,
            "Created": stamp(self.now),
            "Config": {"Labels": {"ringmaster.job": job, "ringmaster.node": self.name}},
            "State": {"Status": state, "ExitCode": code, "OOMKilled": False, "FinishedAt": stamp(self.now + 10)},
            "HostConfig": {"DeviceRequests": list(requests), "Memory": 0},
        }
        return made

    def _take(self, verb: str, *words: str) -> None:
        self.asked.append((verb, *words))
        if verb in self.refuses:
            raise self.refuses[verb]

    def _known(self, container: str) -> dict[str, Any]:
        if container not in self.inspected:
            raise NotFound("gone")
        return self.inspected[container]

    @property
    def containers(self) -> Any:
        return _Containers(self)

    def inspect_container(self, container: str) -> Mapping[str, Any]:
        self._take("inspect", container)
        return self._known(container)

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        assert force and v
        self._take("remove", container)
        self._known(container)
        del self.inspected[container]

    def start(self, container: str) -> None:
        self._take("start", container)
        self._known(container)["State"]["Status"] = "running"

    def kill(self, container: str, *, signal: int = 9) -> None:
        self._take("kill", container, str(signal))
        state = self._known(container)["State"]
        if state["Status"] != "running":
            raise refusal(500 if state["Status"] == "paused" else 409, f"it is {state['Status']}")
        if signal == 9:
            state |= {"Status": "exited", "ExitCode": 137}

    def unpause(self, container: str) -> None:
        self._take("unpause", container)
        self._known(container)["State"]["Status"] = "running"

    def exec_create(self, container: str, words: Sequence[str], **_: Any) -> dict[str, str]:
        self._take("exec", container, *words)
        return {"Id": "exec"}

    def exec_start(self, _: str, *, detach: bool = False) -> bytes:
        return b"" if detach else self.printed.pop(0)


@dataclass
class _Containers:
    """`client.containers` has `create`, and `api.containers` is called: here they are one."""

    engine: FakeEngine

    def create(self, *, name: str, labels: Mapping[str, str], device_requests: Sequence[Any], **_: Any) -> Any:
        self.engine._take("create", name)
        return SimpleNamespace(id=self.engine.put(labels["ringmaster.job"], "created", requests=device_requests))

    def __call__(self, *, all: bool, filters: Mapping[str, str]) -> list[dict[str, str]]:  # noqa: A002
        assert all
        self.engine._take("list")
        label, _, job = filters["label"].partition("=")
        assert label == "ringmaster.job"
        listed = [each for each in self.engine.inspected.values() if job in ("", each["Config"]["Labels"][label])]
        return [{"Id": each["Id"]} for each in reversed(listed)]  # the newest first, as the engine does


def job_container(number: int = 0, created: float = 0.0, **fields: Any) -> JobContainer:
    return JobContainer(
        **{"id": f"c{number}", "job": f"job{number}", "node": "", "state": "created", "created": created, "gpus": None}
        | fields
    )


def test_what_inspect_says_is_read() -> None:
    fake = FakeEngine(now=1.5)
    chosen = [{"Count": 0, "DeviceIDs": ["0", "2"]}, {"DeviceIDs": None}]
    found = parse(fake.inspected[fake.put("a", "exited", 137, chosen)])
    assert found == JobContainer(
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
    assert [each.id for each in engine.containers(fake)] == [first, last]  # type: ignore[arg-type]
    assert [each.id for each in engine.containers(fake, "b")] == [last]  # type: ignore[arg-type]


def test_what_is_gone_or_going_counts_as_removed() -> None:
    fake: Any = FakeEngine()
    engine.remove(fake, "never")
    kept = fake.put("a")
    fake.refuses["remove"] = refusal(409)
    engine.remove(fake, kept)
    fake.refuses["remove"] = refusal(500)
    with pytest.raises(APIError):
        engine.remove(fake, kept)


@pytest.mark.parametrize("state", ["running", "paused", "exited"])
def test_what_runs_ends_at_once_also_what_is_frozen(state: str) -> None:
    fake: Any = FakeEngine()
    one = fake.put("a", state)
    engine.kill(fake, parse(fake.inspected[one]))
    assert fake.inspected[one]["State"]["Status"] == "exited"


def test_what_is_gone_counts_as_ended_and_a_refusal_does_not() -> None:
    fake: Any = FakeEngine()
    one = fake.put("a")
    found = parse(fake.inspected.pop(one))
    engine.kill(fake, found)
    fake.refuses["kill"] = refusal(500)
    with pytest.raises(APIError):
        engine.kill(fake, found)


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
    assert job_container(1).as_there == engine.JobThere(name="job1", all_gpus=True)
    assert job_container(gpus=frozenset("20")).as_there.devices == ("0", "2")
    assert job_container(gpus=frozenset()).as_there == engine.JobThere(name="job0")


MOMENTS = st.integers(0, 20).map(lambda tenth: MOMENT + tenth / 10)
GPUS = st.one_of(st.none(), st.frozensets(st.sampled_from("0123")))
ONE = st.tuples(MOMENTS, GPUS, st.integers(0, 20))


def refused(made: Sequence[tuple[float, frozenset[str] | None, int]], started: int) -> list[bool]:
    """Who gives way, if each looks some tenths of a second after its own container was made.

    Args:
        started: bits; whose container runs already when others look.
    """
    all_of_them = [job_container(number, created, gpus=gpus) for number, (created, gpus, _) in enumerate(made)]
    gives_way = []
    for ours, (created, _, later) in zip(all_of_them, made, strict=True):
        seen = [
            replace(each, state="running") if started >> number & 1 and each is not ours else each
            for number, each in enumerate(all_of_them)
            if each.created <= created + later / 10
        ]
        gives_way.append(in_the_way(seen[::-1], ours) is not None)
    return gives_way


def conflict(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    return not (one and other and not one & other)


@given(made=st.lists(ONE, min_size=1, max_size=4), started=st.integers(0, 15))
def test_whatever_the_order_of_looks_at_most_one_goes_on(made: list[Any], started: int) -> None:
    gives_way = refused(made, started)
    go_on = [gpus for (_, gpus, _), refuses in zip(made, gives_way, strict=True) if not refuses]
    assert not any(conflict(one, other) for number, one in enumerate(go_on) for other in go_on[:number])
    oldest = min(range(len(made)), key=lambda number: (made[number][0], f"c{number}"))
    assert not gives_way[oldest], "never all of them"


@given(made=st.tuples(ONE, ONE), started=st.integers(0, 3))
def test_of_two_one_gives_way_and_none_if_each_chose_gpus_of_its_own(made: tuple[Any, Any], started: int) -> None:
    (_, one, _), (_, other, _) = made
    assert sum(refused(made, started)) == conflict(one, other)


def test_what_a_killed_launcher_left_is_not_in_the_way_for_ever() -> None:
    left, ours = job_container(0, 0), job_container(1, STALE_S + 1)
    assert in_the_way([left, ours], ours) is None
    assert in_the_way([replace(left, state="running"), ours], ours) is not None
    assert in_the_way([left, replace(ours, created=STALE_S - 1)], replace(ours, created=STALE_S - 1)) == left
