"""The journal of what was changed on a node."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.core import disk
from ansible.module_utils.ringmaster.core.manifest import Manifest

from launcher.base.paths import ROOT
from tests.support.disk_calls import disk_calls

PLAYBOOKS = ROOT / "playbooks"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "manifest.json"


def test_it_is_on_the_disk_before_the_change_and_the_first_note_stays(path: Path) -> None:
    Manifest(str(path)).note("a", "file", "/x", before=None)
    Manifest(str(path)).note("a", "file", "/x", before="something later")
    assert json.loads(path.read_text())["entries"] == [{"role": "a", "kind": "file", "name": "/x", "before": None}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_power_cut_leaves_no_change_without_its_note(path: Path) -> None:
    manifest = Manifest(str(path))
    with disk_calls(path.parent.parent) as calls:
        entry = manifest.note("a", "file", "/x")
        assert calls == ["fsync .", "fsync state/manifest.json.part", "replace state/manifest.json", "fsync state"]
        calls.clear()
        manifest.note("a", "file", "/y")
        assert calls == ["fsync state/manifest.json.part", "replace state/manifest.json", "fsync state"]
        manifest.remove(entry)
        calls.clear()
        manifest.remove(manifest.entries[0])
    assert calls == ["unlink state/manifest.json", "fsync state"]


def test_a_file_of_the_systems_is_on_the_disk_before_and_after_it_gets_its_name(tmp_path: Path) -> None:
    with disk_calls(tmp_path) as calls:
        disk.write(str(tmp_path / "file"), "text", mode=0o640, uid=os.geteuid(), gid=os.getegid())
    assert calls == ["fsync .file.ringmaster", "replace file", "fsync ."]


def test_the_newest_is_taken_back_first(path: Path) -> None:
    manifest = Manifest(str(path))
    for name in ("one", "two"):
        manifest.note("a", "file", name)
    manifest.note("b", "file", "three")
    assert [entry["name"] for entry in manifest.of_role("a")] == ["two", "one"]


def test_with_its_last_entry_it_vanishes(path: Path) -> None:
    manifest = Manifest(str(path))
    manifest.remove(manifest.note("a", "file", "/x"))
    assert not path.parent.exists()


def test_its_folder_stays_while_jobs_are_in_it(path: Path) -> None:
    manifest = Manifest(str(path))
    entry = manifest.note("a", "file", "/x")
    (path.parent / "jobs").mkdir()
    manifest.remove(entry)
    assert [one.name for one in path.parent.iterdir()] == ["jobs"]


def test_a_damaged_one_is_an_error_not_an_empty_one(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(ValueError, match="reset takes back what it lists"):
        Manifest(str(path))


def test_a_second_process_waits_until_the_first_has_ended(path: Path) -> None:
    wait = (
        "import sys; import ansible.module_utils as m; m.__path__.append(sys.argv[2])\n"
        "from ansible.module_utils.ringmaster.core.manifest import Manifest\n"
        "one = Manifest(sys.argv[1]); print('in', flush=True); sys.stdin.read(); one.note('a', 'file', '/first')"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", wait, path, PLAYBOOKS / "module_utils"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdin and first.stdout
    first.stdout.readline()
    threading.Timer(0.5, first.stdin.close).start()
    assert [entry["name"] for entry in Manifest(str(path)).entries] == ["/first"]
    assert first.wait(timeout=20) == 0


def test_who_only_looks_waits_for_nobody(path: Path) -> None:
    assert Manifest(str(path), lock=False).entries == []
