"""The node's key: made where the user has none of that name, kept, and taken back."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
import ringmaster_key
import ringmaster_probe
import ringmaster_undo
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.ssh import node_key

from tests.support.disk_calls import disk_calls

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


def another(home: Path, name: str = "another") -> str:
    """Make a key of the user's with a comment like ours, and return its public half."""
    path = home / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ringmaster n1", "-f", path], check=True)
    return (home / f"{name}.pub").read_text().strip()


def test_a_missing_half_is_made_again(home: Path, manifest: Manifest) -> None:
    _, public = ensure(manifest)
    (home / ".ssh/id_ed25519.pub").unlink()
    assert ringmaster_probe.public_key(manifest) is None
    assert ensure(manifest) == (True, public)
    assert ringmaster_probe.public_key(manifest) == public
    (home / ".ssh/id_ed25519").unlink()
    assert ringmaster_probe.public_key(manifest) is None
    changed, other = ensure(manifest)
    assert changed
    assert other != public
    reset(manifest)
    assert not (home / ".ssh").exists()


@pytest.mark.parametrize("stale", [True, False])
def test_a_private_key_that_the_user_put_there_is_never_ours(home: Path, manifest: Manifest, stale: bool) -> None:
    _, public = ensure(manifest)
    another(home)
    (home / "another").replace(home / ".ssh/id_ed25519")
    if not stale:
        (home / ".ssh/id_ed25519.pub").unlink()
    theirs = (home / ".ssh/id_ed25519").read_text()
    assert ringmaster_probe.public_key(manifest) is None
    assert ensure(manifest, check=True) == (True, None)
    changed, other = ensure(manifest)
    assert changed
    assert other not in (None, public)
    assert node_key.derived(str(home / ".ssh/ringmaster_ed25519")) == " ".join((other or "").split()[:2])
    assert ringmaster_probe.public_key(manifest) == other
    assert ensure(manifest) == (False, other)
    reset(manifest)
    assert [path.name for path in (home / ".ssh").iterdir()] == ["id_ed25519"]
    assert (home / ".ssh/id_ed25519").read_text() == theirs


def test_reset_alone_leaves_the_users_key(home: Path, manifest: Manifest) -> None:
    ensure(manifest)
    another(home)
    (home / "another").replace(home / ".ssh/id_ed25519")
    (home / "another.pub").replace(home / ".ssh/id_ed25519.pub")
    reset(manifest)
    assert sorted(path.name for path in (home / ".ssh").iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_a_power_cut_leaves_no_key_without_its_content(home: Path, manifest: Manifest) -> None:
    with disk_calls(home.parent) as calls:
        ensure(manifest)
    key = "home/.ssh/id_ed25519"
    noted = len(calls) - calls[::-1].index("replace state/manifest.json")
    assert calls.index(f"fsync {key}.ringmaster") < noted > calls.index(f"fsync {key}.ringmaster.pub")
    assert calls[noted:] == ["fsync state", f"rename {key}.pub", f"rename {key}", "fsync home/.ssh"]


@pytest.mark.parametrize("step", ["generated", "noted", "public", "both"])
def test_killed_at_any_point(home: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    rename, renamed = os.rename, []

    def counting(old: str, new: str) -> None:
        if len(renamed) == {"noted": 0, "public": 1}.get(step, 2):
            raise Killed
        renamed.append(new)
        rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", counting)
        if step == "generated":
            patched.setattr(ringmaster_key, "_as_user", killed)
        if step == "both":
            ensure(manifest)
        else:
            with pytest.raises(Killed):
                ensure(manifest)
    stored = Manifest(manifest.path)
    _, public = ensure(stored)
    assert ringmaster_probe.public_key(stored) == public
    assert sorted(path.name for path in (home / ".ssh").iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    reset(stored)
    assert not (home / ".ssh").exists()


def test_an_entry_that_never_had_its_key_claims_none(home: Path, manifest: Manifest) -> None:
    (home / ".ssh").mkdir()
    manifest.note("ssh_mesh", "key", str(home / ".ssh/id_ed25519"), public=None)
    another(home, ".ssh/id_ed25519")
    (home / ".ssh/id_ed25519.ringmaster").write_text("of a run that was killed")
    reset(manifest)
    assert sorted(path.name for path in (home / ".ssh").iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_no_name_left(home: Path, manifest: Manifest) -> None:
    (home / ".ssh").mkdir()
    for name in ("id_ed25519", "ringmaster_ed25519"):
        (home / ".ssh" / name).write_text("theirs\n")
    with pytest.raises(ValueError, match="both taken"):
        ensure(manifest)


def test_the_public_half_is_read_as_ssh_keygen_reads_it(tmp_path: Path) -> None:
    for kind, passphrase in (("ed25519", ""), ("rsa", ""), ("ecdsa", "a secret")):
        path = tmp_path / kind
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)
        assert node_key.derived(str(path)) == " ".join((tmp_path / f"{kind}.pub").read_text().split()[:2])
    cut = tmp_path / "cut"
    cut.write_text(
        "".join((tmp_path / "rsa").read_text().splitlines(keepends=True)[:2]) + "-----END OPENSSH PRIVATE KEY-----"
    )
    for odd in (cut, tmp_path, tmp_path / "none", tmp_path / "rsa.pub"):
        assert node_key.derived(str(odd)) is None


def test_a_lost_manifest_is_no_reason_for_another_key(home: Path, manifest: Manifest, tmp_path: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("theirs\n")
    _, public = ensure(manifest)
    anew = Manifest(str(tmp_path / "another" / "manifest.json"))
    (home / ".ssh/ringmaster_ed25519.pub").write_text(f"{public}\n")
    assert ensure(anew) == (True, public)
    assert ensure(anew) == (False, public)
