"""The node's key: made where the user has none of that name, kept, and taken back."""

import os
import pwd
import shutil
from pathlib import Path

import pytest
import ringmaster_key
import ringmaster_undo
from ansible.module_utils.ringmaster_manifest import Manifest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ssh-keygen") is None, reason="makes keys as root does on a node, by ssh-keygen"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    account = pwd.struct_passwd(("root", "x", 0, 0, "", str(tmp_path / "home"), "/bin/bash"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: account)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest(str(tmp_path / "state" / "manifest.json"))


def ensure(manifest: Manifest, check: bool = False) -> tuple[bool, str | None]:
    return ringmaster_key.ensure(manifest, "ssh_mesh", "root", "ringmaster n1", check)


def reset(manifest: Manifest) -> None:
    assert ringmaster_undo.take_back(manifest, "ssh_mesh", [], False)[1] == []


def test_made_kept_taken_back(home: Path, manifest: Manifest) -> None:
    assert ensure(manifest, check=True) == (True, None)
    assert not (home / ".ssh").exists()
    changed, public = ensure(manifest)
    assert changed
    assert public is not None
    assert public.endswith(" ringmaster n1")
    assert (home / ".ssh").stat().st_mode & 0o777 == 0o700
    assert (home / ".ssh/id_ed25519").stat().st_mode & 0o777 == 0o600
    assert ensure(manifest) == (False, public)
    reset(manifest)
    assert not (home / ".ssh").exists()


def test_the_users_key_is_left_alone(home: Path, manifest: Manifest) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519.pub").write_text("theirs\n")
    ensure(manifest)
    assert (home / ".ssh/ringmaster_ed25519").exists()
    reset(manifest)
    assert [path.name for path in (home / ".ssh").iterdir()] == ["id_ed25519.pub"]


def test_one_that_was_interrupted_is_completed(home: Path, manifest: Manifest) -> None:
    _, public = ensure(manifest)
    (home / ".ssh/id_ed25519.pub").unlink()
    assert ensure(manifest) == (True, public)
    (home / ".ssh/id_ed25519").unlink()
    changed, other = ensure(manifest)
    assert changed
    assert other != public
    reset(manifest)
    assert not (home / ".ssh").exists()


def test_a_key_that_the_user_put_there_since_stays(home: Path, manifest: Manifest) -> None:
    ensure(manifest)
    (home / ".ssh/id_ed25519.pub").write_text("ssh-ed25519 THEIRS me\n")
    reset(manifest)
    assert (home / ".ssh/id_ed25519").exists()


def test_a_lost_manifest_is_no_reason_for_another_key(home: Path, manifest: Manifest, tmp_path: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("theirs\n")
    _, public = ensure(manifest)
    anew = Manifest(str(tmp_path / "another" / "manifest.json"))
    (home / ".ssh/ringmaster_ed25519.pub").write_text(f"{public}\n")
    assert ensure(anew) == (True, public)
    assert ensure(anew) == (False, public)
