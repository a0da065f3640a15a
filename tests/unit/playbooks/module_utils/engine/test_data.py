"""What lies in an engine's folder, whether it would go, and what is mounted there: from notes, without an engine."""

import json
import os
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.engine import data
from ansible.module_utils.ringmaster.engine.folders import mounts, removable
from ansible.module_utils.ringmaster.packages.dpkg import Package

FOLDER = "/var/lib/docker"
ROOT = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
CRASHED = ROOT + (
    "2 1 8:1 /var/lib/docker /var/lib/docker rw - ext4 /dev/sda1 rw\n"
    "3 2 8:1 /var/lib/docker /var/lib/docker rw - ext4 /dev/sda1 rw\n"
    "4 3 0:50 / /var/lib/docker/overlay2/a\\040b/merged rw - overlay overlay rw\n"
    "5 4 0:51 / /var/lib/docker/overlay2/a\\040b/merged/x rw - tmpfs tmpfs rw\n"
    "6 1 0:52 / /var/lib/docker-other rw - tmpfs tmpfs rw\n"
)


def container(folder: Path, name: str, pid: int = 0, **labels: str) -> None:
    place = folder / "containers" / f"{name}-identity"
    place.mkdir(parents=True)
    state = {"Running": pid > 0, "Pid": pid}
    (place / "config.v2.json").write_text(
        json.dumps({"Name": f"/{name}", "Config": {"Labels": labels}, "State": state})
    )


def test_an_engine_that_is_stopped_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "ask", lambda *_: None)
    assert not str(data.belongings(str(tmp_path)))
    container(tmp_path, "web")
    container(tmp_path, "job-ended", **{"ringmaster.job": "old"})
    container(tmp_path, "job", pid=os.getpid(), **{"ringmaster.job": "brave-otter"})
    (tmp_path / "containers" / "0123456789abcdef").mkdir()
    (tmp_path / "volumes" / "weights").mkdir(parents=True)
    (tmp_path / "volumes" / "metadata.db").touch()
    found = data.belongings(str(tmp_path))
    assert found == data.Belongings(["0123456789ab", "web"], ["weights"])
    assert str(found) == "containers 0123456789ab, web and volumes weights"
    assert data.jobs_alive(str(tmp_path)) == ["brave-otter"]


def test_an_engine_that_runs_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = [{"Name": "far", "Driver": "nfs"}, {"Name": "near", "Driver": "local"}]
    monkeypatch.setattr(data, "ask", lambda *_: [[{"Names": ["/web"], "Labels": None}], {"Volumes": volumes}])
    assert data.belongings() == data.Belongings(["web"], ["near"])
    monkeypatch.setattr(data, "ask", lambda *_: [[], {"Volumes": None}])
    assert data.belongings() == data.Belongings([], [])


@pytest.mark.parametrize(
    ("was", "present", "state", "keep", "goes"),
    [
        ({"paths": [], "empty": []}, True, "installed", False, True),
        ({"paths": [], "empty": []}, True, "installed", True, False),
        ({"paths": [FOLDER], "empty": []}, True, "installed", False, False),
        ({"paths": [FOLDER], "empty": [FOLDER]}, True, "installed", False, True),
        ({"paths": [], "empty": []}, True, "config-files", False, False),  # another engine is in its place
        ({"paths": [], "empty": []}, False, "config-files", True, True),  # none is there any more
    ],
)
def test_whether_the_data_would_go(
    was: dict[str, list[str]],
    present: bool,
    state: str,
    keep: bool,
    goes: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = Manifest(str(tmp_path / "manifest.json"))
    assert not data.data_goes(manifest, "role", keep_packages=keep)
    manifest.note("role", "engine", "docker.service", before=was)
    manifest.note("role", "packages", "apt", asked=["docker.io"], came=[])
    monkeypatch.setattr(data.shutil, "which", lambda _: "/usr/sbin/dockerd" if present else None)
    monkeypatch.setattr(data, "process", lambda: None)
    monkeypatch.setattr(data, "packages", lambda: {"docker.io": Package("20.10", "install", state)})
    assert data.data_goes(manifest, "role", keep_packages=keep) is goes


def test_what_a_crash_left_mounted_is_unmounted_the_deepest_first() -> None:
    inner = f"{FOLDER}/overlay2/a b/merged"
    assert removable(FOLDER, mounts(CRASHED)) == [f"{inner}/x", inner, FOLDER, FOLDER]
    assert removable("/var/lib/containerd", mounts(CRASHED)) == []


@pytest.mark.parametrize(
    "line",
    [
        "2 1 8:2 / /var/lib/docker rw - ext4 /dev/sdb rw\n",
        "2 1 8:1 /data/docker /var/lib/docker rw - ext4 /dev/sda1 rw\n",
    ],
)
def test_another_disk_at_the_folder_is_the_users(line: str) -> None:
    assert removable(FOLDER, mounts(ROOT + line)) == []
    parent = "7 0 7:0 / /var/lib rw - ext4 /dev/loop0 rw\n8 7 7:0 /docker /var/lib/docker rw - ext4 /dev/loop0 rw\n"
    assert removable(FOLDER, mounts(parent)) == [FOLDER]
