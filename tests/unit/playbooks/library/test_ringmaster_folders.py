"""Folders of jobs and data on a node: made, given to their owner, taken back, and what of them must not be lost."""

import os
from pathlib import Path
from typing import Any

import pytest
import ringmaster_folders
import ringmaster_undo
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.folders import undo
from ansible.module_utils.ringmaster.folders.look import look_folders

ME = {"uid": os.getuid(), "gid": os.getgid()}
OTHER = os.getuid() + 1


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest(str(tmp_path / "state" / "manifest.json"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was given to whom, in this order; without root it can't really be."""
    seen: list[tuple[str, int]] = []

    def chown(path: Any, uid: int, gid: int, **_: Any) -> None:
        seen.append((Path(path).name, uid))

    monkeypatch.setattr(os, "chown", chown)
    return seen


def wanted(path: Path, **more: Any) -> dict[str, Any]:
    return {"path": str(path), "mode": "0700", "jobs": True, **ME, **more}


def ensure(manifest: Manifest, folder: dict[str, Any], check: bool = False) -> bool:
    return ringmaster_folders.ensure(manifest, "role", folder, check) is not None


def take_back(manifest: Manifest) -> list[str]:
    return ringmaster_undo.take_back(manifest, "role", [], False)[1]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("given")  # the folders above are root's
def test_there_and_back_with_what_is_in_it(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "disk" / "ringmaster" / "jobs"
    assert ensure(manifest, wanted(path), check=True)
    assert not (tmp_path / "disk").exists()
    assert not manifest.entries
    assert ensure(manifest, wanted(path))
    assert (mode(path.parent), mode(path)) == (0o755, 0o700)
    assert not ensure(manifest, wanted(path))
    (path / "night" / "run").mkdir(parents=True)
    (path / "night" / "collected").touch()
    (path / ".cache").mkdir()
    assert take_back(manifest) == []
    assert list(tmp_path.iterdir()) == []


def test_beside_the_manifest_it_needs_no_note_of_the_folder_above(tmp_path: Path, manifest: Manifest) -> None:
    assert ensure(manifest, wanted(tmp_path / "state" / "jobs"))
    assert [one["name"] for one in manifest.entries] == [str(tmp_path / "state" / "jobs")]
    take_back(manifest)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o077, 0o022])
def test_the_folder_of_the_manifest_lets_others_through(manifest: Manifest, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        ensure(manifest, wanted(tmp_path / "state" / "jobs"))
    finally:
        os.umask(before)
    assert mode(tmp_path / "state") == 0o755


def test_one_that_was_there_before_stays_and_gets_its_mode_back(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "jobs"
    (path / "mine").mkdir(parents=True)
    path.chmod(0o750)
    assert ensure(manifest, wanted(path))
    assert mode(path) == 0o700
    assert look_folders([], manifest)["uncollected"] == []
    assert take_back(manifest) == []
    assert (mode(path), [one.name for one in path.iterdir()]) == (0o750, ["mine"])


def test_what_drifts_is_mended_and_the_first_before_stays(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "jobs"
    path.mkdir(mode=0o750)
    for drifted in (0o750, 0o777):
        path.chmod(drifted)
        assert ensure(manifest, wanted(path))
    take_back(manifest)
    assert mode(path) == 0o750


def test_results_that_nobody_has_fetched_are_named_and_kept(tmp_path: Path, manifest: Manifest) -> None:
    path, data = tmp_path / "jobs", tmp_path / "data"
    for folder in (wanted(path), wanted(data, jobs=False)):
        ensure(manifest, folder)
    for name in ("fetched", "night", "too large", ".cache"):
        (path / name).mkdir()
    for name in ("collected", "left"):
        (path / "too large" / name).touch()
    (path / "fetched" / "collected").touch()
    (path / "a file").touch()
    (data / "fashion-mnist").mkdir()
    found = look_folders([str(path), str(tmp_path / "none")], manifest)
    assert found["uncollected"] == [str(path / "night"), str(path / "too large")]
    (path / "too large" / "left").unlink()
    assert found["folders"] == {str(path): {"mode": "0700", **ME}, str(tmp_path / "none"): None}
    (problem,) = take_back(manifest)
    assert str(path / "night") in problem
    assert sorted(one.name for one in path.iterdir()) == [".cache", "a file", "fetched", "night", "too large"]
    assert not data.exists()
    (path / "night").rmdir()
    assert take_back(manifest) == []
    assert not path.exists()


def test_a_killed_reset_goes_on_and_finds_no_jobs_in_what_is_left(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs"
    ensure(manifest, wanted(path))
    (path / "night").mkdir()
    (path / "night" / "collected").touch()

    def killed(folder: str) -> None:
        (Path(folder) / "night" / "collected").unlink()
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(undo.shutil, "rmtree", killed)
        assert take_back(manifest)
    assert look_folders([], manifest)["uncollected"] == []
    ensure(manifest, wanted(path))
    (path / "later").mkdir()
    assert look_folders([], manifest)["uncollected"] == [str(path / "later")]
    (path / "later").rmdir()
    assert take_back(manifest) == []
    assert not [one.name for one in tmp_path.iterdir()]


def test_a_mount_is_not_emptied(tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    ensure(manifest, wanted(path, jobs=False))
    (path / "theirs").mkdir()
    lines = f"30 1 8:1 / {tmp_path}/data-2 rw - ext4 x rw\n31 1 8:1 / {path}/theirs rw - ext4 x rw\n"
    monkeypatch.setattr("ansible.module_utils.ringmaster.folders.job_folders.read", lambda _: lines)
    (problem,) = take_back(manifest)
    assert f"{path}/theirs is a mount" in problem
    assert (path / "theirs").exists()


def test_a_link_in_its_place_stays_with_what_is_behind_it(tmp_path: Path, manifest: Manifest) -> None:
    path, bigger = tmp_path / "jobs", tmp_path / "bigger"
    ensure(manifest, wanted(path))
    (path / "night").mkdir()
    path.rename(bigger)
    path.symlink_to(bigger)
    assert look_folders([], manifest)["uncollected"] == []
    assert take_back(manifest) == []
    assert path.is_symlink()
    assert (bigger / "night").exists()


def test_of_a_link_that_was_there_the_folder_behind_it_is_meant(tmp_path: Path, manifest: Manifest) -> None:
    link, target = tmp_path / "jobs", tmp_path / "bigger"
    link.symlink_to(target)
    assert ensure(manifest, wanted(link))
    assert mode(target) == 0o700
    assert not ensure(manifest, wanted(link))
    take_back(manifest)
    assert link.is_symlink()
    assert not target.exists()


def test_a_file_in_its_place_is_named(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / "jobs").touch()
    with pytest.raises(ValueError, match="jobs is a file"):
        ensure(manifest, wanted(tmp_path / "jobs"))
    assert not manifest.entries


def test_a_folder_that_others_use_is_left_to_them(
    tmp_path: Path, manifest: Manifest, given: list[tuple[str, int]]
) -> None:
    path = tmp_path / "srv"
    path.mkdir()
    assert ensure(manifest, wanted(path, uid=OTHER))  # empty: nobody misses it
    assert given == [("srv", OTHER)]
    manifest.entries.clear()
    (path / "theirs").touch()
    with pytest.raises(ValueError, match="in use by others"):
        ensure(manifest, wanted(path, uid=OTHER), check=True)


def test_a_new_user_gets_what_the_one_before_had(
    tmp_path: Path, manifest: Manifest, given: list[tuple[str, int]]
) -> None:
    path = tmp_path / "jobs"
    ensure(manifest, wanted(path))
    (path / ".code").mkdir()
    (path / ".code" / "blob").touch()
    given.clear()
    assert ensure(manifest, wanted(path, uid=OTHER))
    assert given == [(".code", OTHER), ("blob", OTHER), ("jobs", OTHER)]
    given.clear()
    ringmaster_folders.hand_over(str(path), before=OTHER, uid=7, gid=7)  # nothing in there is theirs
    assert given == []
