import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainer.checkpoint import files
from trainer.checkpoint.files import CheckpointFolder
from trainer.errors import UserError


def facts(step: int, accuracy: float | None = None) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": 0,
        "position": step,
        "world_size": 1,
        "global_batch": 256,
        "dataset": "synthetic",
        "model": "tutorial-cnn",
        "optimizer": "sgd",
        "torch": "2",
        "test_accuracy": accuracy,
    }


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAUSES", (0.0, 0.0, 0.0), raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    made = CheckpointFolder(tmp_path)
    for step in (10, 20, 30):
        made.write(f"state {step}".encode() * 100, facts(step), keep=3)
    return made


def newest(folder: CheckpointFolder) -> tuple[int, list[str]] | None:
    said: list[str] = []
    found = folder.newest(say=said.append, set_aside=True)
    return found and (found[1].step, said)


def test_the_newest_is_found_and_names_are_as_promised(folder: CheckpointFolder) -> None:
    assert newest(folder) == (30, [])
    assert sorted(path.name for path in folder.path.iterdir())[-2:] == ["step-00000030.json", "step-00000030.pt"]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    assert newest(CheckpointFolder(tmp_path / "none")) is None


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [_truncate, _flip_a_bit, lambda path: path.write_bytes(b"")])
def test_a_bad_newest_is_kept_aside_and_the_one_before_is_taken(
    folder: CheckpointFolder, spoil: Callable[[Path], None]
) -> None:
    bad = folder.path / "step-00000030.pt"
    spoil(bad)
    found = newest(folder)
    assert found is not None and found[0] == 20
    assert len(found[1]) == 1 and "step-00000030" in found[1][0]
    assert (folder.path / "step-00000030.json.bad").exists() and not bad.exists()


def test_half_a_checkpoint_is_passed_over_and_left_for_its_other_half(folder: CheckpointFolder) -> None:
    (folder.path / "step-00000030.pt").unlink()
    found = newest(folder)
    assert found is not None and found[0] == 20
    assert "step-00000030 is incomplete" in found[1][0]
    assert (folder.path / "step-00000030.json").exists()


@dataclass
class _Disk:
    """A disk that refuses to read files and folders whose names contain `part`, `times` times."""

    part: str
    times: int
    error: type[BaseException] = OSError
    number: int = errno.EIO

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("read_bytes", "iterdir"):
            monkeypatch.setattr(Path, name, self._failing(getattr(Path, name)))

    def _failing(self, original: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def read(path: Path) -> Any:
            if self.part in path.name and self.times:
                self.times -= 1
                raise self.error(self.number, os.strerror(self.number))
            return original(path)

        return read


ERRORS = [(OSError, number) for number in (errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES, errno.ENETUNREACH)]


@pytest.mark.parametrize(("error", "number"), [*ERRORS, (MemoryError, errno.ENOMEM)])
def test_a_moments_error_is_no_damage(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], number: int
) -> None:
    _Disk("step-00000030.pt", 2, error, number).install(monkeypatch)
    assert newest(folder) == (30, [])


@pytest.mark.parametrize(("error", "number"), [*ERRORS, (MemoryError, errno.ENOMEM)])
@pytest.mark.parametrize("part", ["step-", ".json", "step-00000030.pt"])
def test_what_cannot_be_read_is_neither_renamed_nor_given_up(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], number: int, part: str
) -> None:
    names = sorted(path.name for path in folder.path.iterdir())
    with monkeypatch.context() as patched:
        _Disk(part, 10**6, error, number).install(patched)
        with pytest.raises(UserError, match=r"step-00000030.pt, can't be read: .*; it is left as it is") as caught:
            newest(folder)
    assert caught.value.exit_code == 4
    assert sorted(path.name for path in folder.path.iterdir()) == names
    assert newest(folder) == (30, [])


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Disk(folder.path.name, 10**6).install(monkeypatch)
    for look in (lambda: newest(folder), folder.retire):
        with pytest.raises(UserError, match="Input/output error") as caught:
            look()
        assert caught.value.exit_code == 4


def test_a_bad_one_that_cannot_be_renamed_is_passed_over_all_the_same(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    _truncate(folder.path / "step-00000030.pt")
    monkeypatch.setattr(Path, "rename", refuse)
    found = newest(folder)
    assert found is not None and found[0] == 20 and ".bad" not in found[1][0]
    with pytest.raises(UserError, match="Read-only file system"):
        folder.retire()


def test_what_is_written_counts_even_if_nothing_old_can_be_removed(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Path.unlink

    def refuse(path: Path, **options: bool) -> None:
        if "step-00000010" in path.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert folder.write(b"x", facts(40), keep=1).name == "step-00000040.pt"


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("renamable", [True, False])
def test_steps_of_an_earlier_count_are_set_aside(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, keep: int, renamable: bool
) -> None:
    """A run that continues with a larger global batch counts fewer steps for the same images."""

    def refuse(path: Path, target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if not renamable:
        monkeypatch.setattr(Path, "rename", refuse)
    assert folder.write(b"x", facts(16), keep=keep).exists()
    if renamable:
        assert newest(folder) == (16, [])
        assert {path.name[:13] for path in folder.path.glob("*.old")} == {"step-00000020", "step-00000030"}


def test_the_last_resort_is_searched_too_and_pruned(folder: CheckpointFolder, tmp_path: Path) -> None:
    both = CheckpointFolder(folder.path, last_resort=tmp_path / "last-resort")
    assert newest(both) == (30, [])
    assert both.write(b"z", facts(40), keep=3, to=both.last_resort) == tmp_path / "last-resort" / "step-00000040.pt"
    assert newest(both) == (40, []) and newest(folder) == (30, [])
    both.write(b"z", facts(50), keep=1)
    assert [path.name for path in (tmp_path / "last-resort").iterdir()] == []
    both.write(b"z", facts(60), keep=1, to=both.last_resort)
    assert both.retire() >= 1
    assert newest(both) is None


def test_room_is_made_without_the_newest_valid_one_and_with_the_best_last(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step, accuracy in [(1, 0.5), (2, 0.9), (3, None), (4, 0.8), (5, None)]:
        folder.write(b"x", facts(step, accuracy), keep=9)
    _flip_a_bit(tmp_path / "step-00000005.pt")
    assert [path.stem[-1] for path in folder.expendable()] == ["1", "3", "2"]
    for path in tmp_path.glob("*.pt"):
        path.write_bytes(b"?")
    assert folder.expendable() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"step": 30}', b"\xff\xfe"])
def test_a_bad_manifest_is_a_bad_checkpoint(folder: CheckpointFolder, content: bytes) -> None:
    (folder.path / "step-00000030.json").write_bytes(content)
    found = newest(folder)
    assert found is not None and found[0] == 20


def test_all_bad_is_an_error_and_stays_one(folder: CheckpointFolder) -> None:
    for path in folder.path.glob("*.pt"):
        _flip_a_bit(path)
    for _ in range(2):
        with pytest.raises(UserError, match="intact") as caught:
            newest(folder)
        assert caught.value.exit_code == 4


def test_a_content_without_manifest_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-00000001.pt").write_bytes(b"killed before the manifest was written")
    assert newest(CheckpointFolder(tmp_path)) is None


def test_another_folder_is_only_read(folder: CheckpointFolder) -> None:
    _truncate(folder.path / "step-00000030.pt")
    before = sorted(folder.path.iterdir())
    found = folder.newest(say=lambda line: None, set_aside=False)
    assert found is not None and found[1].step == 20
    assert sorted(folder.path.iterdir()) == before


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step, accuracy in [(1, 0.5), (2, 0.9), (3, None), (4, 0.8), (5, None)]:
        folder.write(b"x", facts(step, accuracy), keep=2)
    assert sorted(path.stem[-1] for path in tmp_path.glob("*.pt")) == ["2", "4", "5"]
    assert sorted(path.stem[-1] for path in tmp_path.glob("*.json")) == ["2", "4", "5"]


def test_a_checkpoint_is_rated_afterwards(folder: CheckpointFolder) -> None:
    before = (folder.path / "step-00000020.pt").stat()
    assert folder.rate(facts(20, 0.5)) == folder.path / "step-00000020.pt"
    assert (folder.path / "step-00000020.pt").stat() == before
    manifest, content = files.read(folder.path / "step-00000020.json")
    assert (manifest.test_accuracy, content) == (0.5, b"state 20" * 100)
    assert folder.rate(facts(20, 0.5) | {"global_batch": 7}) is None, "another count of steps"
    assert folder.rate(facts(25, 0.5)) is None
    (folder.path / "step-00000010.pt").unlink()
    assert folder.rate(facts(10, 0.5)) is None, "half a checkpoint"


def test_an_earlier_runs_checkpoints_are_retired(folder: CheckpointFolder) -> None:
    _truncate(folder.path / "step-00000030.pt")
    newest(folder)
    assert folder.retire() == 2
    assert newest(folder) is None
    assert len(list(folder.path.glob("*.old"))) == 6


def test_a_full_disk_leaves_the_one_before_intact(folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            folder.write(b"y" * 1000, facts(40), keep=3)
        with pytest.raises(OSError, match="No space left"):
            folder.write(b"y" * 1000, facts(30), keep=3)
    assert not list(folder.path.glob("*.partial"))
    assert newest(folder) == (30, [])


WRITER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from trainer.checkpoint.files import CheckpointFolder
facts, folder = {facts!r}, CheckpointFolder(Path({path!r}))
print("writing", flush=True)
for step in range({first}, {first} + 100000):
    folder.write(bytes([step % 251]) * 2_000_000, dict(facts, step=step), keep=2)
    print(step, flush=True)
"""


def test_sigkill_never_leaves_a_torn_checkpoint(tmp_path: Path) -> None:
    random.seed(15)
    root, first, folder = str(Path(files.__file__).parents[2]), 1, CheckpointFolder(tmp_path)
    for _ in range(12):
        code = WRITER.format(root=root, facts=facts(0), path=str(tmp_path), first=first)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline()
            assert writer.stdout.readline(), "one is whole, however slow the disk is: each round goes further"
            time.sleep(random.uniform(0.02, 0.15))
            writer.send_signal(signal.SIGKILL)
        for manifest in tmp_path.glob("step-*.json"):
            whole, content = files.read(manifest)
            assert set(content) == {whole.step % 251}
        found = newest(folder)
        first = 1 if found is None else found[0] + 1
    assert first > 12


def test_the_manifest_is_plain_json(folder: CheckpointFolder) -> None:
    manifest = json.loads((folder.path / "step-00000020.json").read_text())
    assert manifest["step"] == 20 and manifest["bytes"] == 800 and len(manifest["sha256"]) == 64
