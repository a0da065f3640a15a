"""Under which containers no package may be installed: jobs, and whatever was given GPUs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.ringmaster.engine import data, in_use

GPUS = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
JOB = {"ringmaster.job": "brave-otter"}


def engine(
    monkeypatch: pytest.MonkeyPatch, containers: dict[str, tuple[dict[str, str], dict[str, Any] | None]]
) -> None:
    """An engine that answers: labels and host settings by container; one without settings ends meanwhile."""
    listed = [{"Id": name, "Names": [f"/{name}"], "Labels": labels} for name, (labels, _) in containers.items()]

    def ask(path: str) -> list[Any] | None:
        if "label" in path:
            return [[one for one in listed if one["Labels"]]]
        if path == "/containers/json":
            return [listed]
        host = containers[path.split("/")[2]][1]
        return None if host is None else [{"HostConfig": host}]

    for module in (data, in_use):
        monkeypatch.setattr(module, "ask", ask)


def test_nothing_runs_or_nothing_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, {})
    assert in_use.in_use() == ""
    in_use.refuse_in_use()
    engine(monkeypatch, {"web": ({}, {"DeviceRequests": None, "Runtime": "runc", "Devices": []}), "gone": ({}, None)})
    assert in_use.in_use() == ""


@pytest.mark.parametrize(
    "host", [GPUS, {"Runtime": "nvidia"}, {"Devices": [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/x"}]}]
)
def test_whoever_was_given_gpus_counts(monkeypatch: pytest.MonkeyPatch, host: dict[str, Any]) -> None:
    engine(monkeypatch, {"web": ({}, host), "other": ({}, {})})
    assert in_use.in_use().startswith("container web runs there and could lose its GPUs")
    assert "`docker stop web`" in in_use.in_use()


def test_jobs_count_without_gpus_too_and_are_stopped_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, {"a": (JOB, GPUS), "b": (JOB, {}), "web": ({}, GPUS)})
    with pytest.raises(ValueError, match="job brave-otter and container web runs there") as raised:
        in_use.refuse_in_use()
    assert "(`make stop NAME=brave-otter`, `docker stop web`)" in str(raised.value)


def test_containers_that_outlive_their_engine_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (data, in_use):
        monkeypatch.setattr(module, "ask", lambda *_: None)
    for name, pid in (("web", os.getpid()), ("ended", 0)):
        place = tmp_path / "containers" / name
        place.mkdir(parents=True)
        state = {"Running": pid > 0, "Pid": pid}
        (place / "config.v2.json").write_text(json.dumps({"Name": name, "Config": {"Labels": {}}, "State": state}))
        (place / "hostconfig.json").write_text(json.dumps(GPUS))
    assert in_use.gpu_containers(str(tmp_path)) == ["web"]
