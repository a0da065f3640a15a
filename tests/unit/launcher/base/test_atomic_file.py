"""A file is replaced whole: after a power cut there is the old one or the new one."""

import os
from pathlib import Path

import pytest

from launcher.base import atomic_file
from tests.support.disk_calls import disk_calls


def test_content_is_on_the_disk_before_it_gets_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = os.open(tmp_path / "part", os.O_WRONLY | os.O_CREAT), str(tmp_path / "part")
    monkeypatch.setattr(atomic_file.tempfile, "mkstemp", lambda **_: part)
    with disk_calls(tmp_path) as calls:
        atomic_file.write(tmp_path / "file", "text")
    assert calls == ["fsync part", "replace file", "fsync ."]
    assert (tmp_path / "file").read_text() == "text"


def test_a_folder_that_cannot_be_synced_does_not_make_a_written_file_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(atomic_file.os, "fsync", unsupported)
    atomic_file.write(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"


def test_a_file_that_cannot_be_put_on_the_disk_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(atomic_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_file.write(tmp_path / "file", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}
