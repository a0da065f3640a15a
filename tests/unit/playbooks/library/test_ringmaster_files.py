"""Writing files so that they can be taken back: each kind is written, and taken back."""

import errno
import getpass
import json
from pathlib import Path
from typing import Any

import pytest
import ringmaster_files
import ringmaster_undo
from ansible.module_utils.ringmaster.core.disk import replacing
from ansible.module_utils.ringmaster.core.manifest import Manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest(str(tmp_path / "state" / "manifest.json"))


def wanted(path: Path, text: str, how: str, **more: Any) -> dict[str, Any]:
    given = {"path": str(path), "text": text, "how": how, "owner": getpass.getuser(), **more}
    return {"top": False, "mode": "0644", "folder_mode": "0755", **given}


def ensure(manifest: Manifest, file: dict[str, Any], check: bool = False) -> bool:
    return ringmaster_files.ensure(manifest, "role", file, check) is not None


def reset(manifest: Manifest) -> list[str]:
    _, problems = ringmaster_undo.take_back(manifest, "role", [], False)
    assert not manifest.entries or problems
    return problems


@pytest.mark.parametrize("how", ["file", "block", "json"])
@pytest.mark.parametrize("old", [None, '{"theirs": 1}', '{"theirs": 1}\n'])
def test_there_and_back(tmp_path: Path, manifest: Manifest, how: str, old: str | None) -> None:
    path = tmp_path / "folder" / "file"
    if old is not None:
        path.parent.mkdir()
        path.write_text(old)
        path.chmod(0o640)
    file = wanted(path, '{"ours": 2}\n', how)
    assert ensure(manifest, file, check=True)
    assert path.exists() == (old is not None)
    assert not manifest.entries
    assert ensure(manifest, file)
    assert "ours" in path.read_text()
    assert not ensure(manifest, file)
    assert reset(manifest) == []
    if old is None:
        assert not path.parent.exists()
    else:
        assert (path.read_text(), path.stat().st_mode & 0o777) == (old, 0o640)


def test_a_second_text_keeps_the_first_before(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "file"
    path.write_text("first day")
    for text in ("one", "two"):
        assert ensure(manifest, wanted(path, text, "file"))
    reset(manifest)
    assert path.read_text() == "first day"


def test_anothers_file_keeps_mode_and_bytes_that_are_no_text(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "authorized_keys"
    path.write_bytes(b"key \xff\xfe\r\n# no newline")
    path.chmod(0o600)
    assert ensure(manifest, wanted(path, "ours\n", "block"))
    assert path.read_bytes() == b"key \xff\xfe\r\n# no newline\n# BEGIN ringmaster\nours\n# END ringmaster\n"
    assert path.stat().st_mode & 0o777 == 0o600
    reset(manifest)
    assert path.read_bytes() == b"key \xff\xfe\r\n# no newline"


def test_keys_that_others_set_since_stay(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"log-driver": "syslog"}')
    ensure(manifest, wanted(path, '{"log-driver": "local", "live-restore": true}', "json"))
    now = json.loads(path.read_text()) | {"debug": True}
    path.write_text(json.dumps(now))
    reset(manifest)
    assert json.loads(path.read_text()) == {"log-driver": "syslog", "debug": True}


def test_a_link_is_followed(tmp_path: Path, manifest: Manifest) -> None:
    target, link = tmp_path / "dotfiles", tmp_path / ".bashrc"
    target.write_text("theirs\n")
    link.symlink_to(target)
    ensure(manifest, wanted(link, "ours\n", "block", top=True))
    assert link.is_symlink()
    assert target.read_text().endswith("# END ringmaster\ntheirs\n")


def test_a_damaged_json_is_named_and_left(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"daemon\.json"):
        ensure(manifest, wanted(path, '{"a": 1}', "json"))
    assert path.read_text() == "{"


def test_what_cannot_be_taken_back_is_named_and_the_rest_is_done(tmp_path: Path, manifest: Manifest) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        ensure(manifest, wanted(path, "ours\n", "block"))
    second.write_text("# BEGIN ringmaster\n")
    problems = reset(manifest)
    assert len(problems) == 1
    assert str(second) in problems[0]
    assert not first.exists()
    assert [entry["name"] for entry in manifest.entries] == [str(second)]


def test_a_file_that_is_a_mount_is_written_in_place(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")
    inode = path.stat().st_ino

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr("os.replace", busy)
    manifest.save = lambda: None  # type: ignore[method-assign]  # it is replaced too
    ensure(manifest, wanted(path, "ours\n", "block", top=True))
    assert path.read_text().endswith("# END ringmaster\n127.0.0.1 localhost\n")
    assert path.stat().st_ino == inode
    assert [one.name for one in tmp_path.iterdir()] == ["hosts"]


def test_what_others_set_inside_a_key_of_ours_stays(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "daemon.json"
    ensure(manifest, wanted(path, '{"log-opts": {"max-size": "10m", "max-file": "3"}, "live-restore": true}', "json"))
    now = json.loads(path.read_text())
    now["log-opts"] |= {"max-size": "1g", "tag": "mine"}
    path.write_text(json.dumps(now))
    reset(manifest)
    assert json.loads(path.read_text()) == {"log-opts": {"max-size": "1g", "tag": "mine"}}


def test_a_link_that_leads_nowhere_yet_stays(tmp_path: Path, manifest: Manifest) -> None:
    target, link = tmp_path / "dotfiles", tmp_path / ".bashrc"
    link.symlink_to(target)
    ensure(manifest, wanted(link, "ours\n", "block", top=True))
    assert target.exists()
    reset(manifest)
    assert link.is_symlink()
    assert not target.exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path, part = tmp_path / "file", tmp_path / "part"
    path.write_text("old")
    with pytest.raises(OSError, match="No space"), replacing(str(path), str(part)):
        part.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old"
    assert not part.exists()
    with replacing(str(path), str(part)):
        part.write_text("new")
    assert path.read_text() == "new"
    assert not part.exists()


def test_what_a_killed_write_left_goes_too(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "file"
    ensure(manifest, wanted(path, "ours\n", "file"))
    (tmp_path / ".file.ringmaster").write_text("half")
    reset(manifest)
    assert list(tmp_path.iterdir()) == []


def test_what_others_set_between_two_runs_of_ours_stays(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"debug": false}')
    ensure(manifest, wanted(path, '{"log-driver": "local"}', "json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dns": ["192.0.2.1"]}))
    ensure(manifest, wanted(path, '{"log-driver": "json-file"}', "json"))
    reset(manifest)
    assert json.loads(path.read_text()) == {"debug": False, "dns": ["192.0.2.1"]}
