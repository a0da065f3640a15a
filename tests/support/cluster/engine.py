"""A Docker engine that answers from memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from docker.errors import APIError, NotFound

from launcher.cluster.engine.containers import JobContainer

MOMENT = 1_767_225_600.0  # 2026-01-01


def stamp(seconds: float) -> str:
    """Return a moment as the engine writes it."""
    return datetime.fromtimestamp(MOMENT + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def refusal(status: int, why: str = "no") -> APIError:
    """Return what the SDK raises if the engine refuses."""
    return APIError("refused", response=SimpleNamespace(status_code=status), explanation=why)  # type: ignore[arg-type]


@dataclass
class FakeEngine:
    """An engine with its containers and their output in memory; both `DockerClient` and its `api`."""

    name: str = "node1"
    now: float = 0.0
    inspected: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    refuses: dict[str, Exception] = field(default_factory=dict)
    """By verb."""
    printed: list[bytes] = field(default_factory=list)
    """What the exec'd programs print, one after the other."""

    @property
    def api(self) -> "FakeEngine":
        return self

    @property
    def containers_of(self) -> list[str]:
        return [each["Config"]["Labels"]["ringmaster.job"] for each in self.inspected.values()]

    def put(self, job: str, state: str = "running", code: int = 0, requests: Sequence[Any] = ()) -> str:
        """Add a container of a job, created now; return its ID."""
        container_id = f"{self.name}-{job}-{len(self.inspected)}"
        self.inspected[container_id] = {
            "Id": container_id,
            "Created": stamp(self.now),
            "Config": {"Labels": {"ringmaster.job": job, "ringmaster.node": self.name}},
            "State": {"Status": state, "ExitCode": code, "OOMKilled": False, "FinishedAt": stamp(self.now + 10)},
            "HostConfig": {"DeviceRequests": list(requests), "Memory": 0},
        }
        return container_id

    def _take(self, verb: str, *words: str) -> None:
        self.calls.append((verb, *words))
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


def job_container(number: int = 0, created: float = 0.0, **fields: Any) -> JobContainer:
    """Return a container of a job, created and not started unless `fields` say otherwise."""
    return JobContainer(
        **{"id": f"c{number}", "job": f"job{number}", "node": "", "state": "created", "created": created, "gpus": None}
        | fields
    )


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
