"""The script that puts ufw back, in folders of its own; the real thing is tried in the lab."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.firewall import rollback
from ansible.module_utils.ringmaster.firewall.rollback import BOOT, FOLDER, SCRIPT
from ansible.module_utils.ringmaster.firewall.rules import PATHS

from tests.support.disk_calls import disk_calls


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose ufw is changed, with the way back beside it."""
    state = tmp_path / "state"
    for path in PATHS:
        for where, text in ((tmp_path / path[1:], "changed\n"), (state / "pending" / path[1:], "before, no newline")):
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(text)
        (state / "pending" / path[1:]).chmod(0o600)
    script = SCRIPT.replace(FOLDER, str(state)).replace("/etc/", f"{tmp_path}/etc/")
    # The stored files keep their places below the folder.
    (state / "rollback").write_text(script.replace('restoring$file"', "restoring${file#" + str(tmp_path) + '}"'))
    return tmp_path


def run(node: Path) -> None:
    subprocess.run(["sh", node / "state" / "rollback", "boot"], check=True)


def restored(node: Path) -> bool:
    found = [node / path[1:] for path in PATHS]
    return all(one.read_text() == "before, no newline" and one.stat().st_mode & 0o777 == 0o600 for one in found)


def test_files_come_back_with_their_modes_and_nothing_is_left(node: Path) -> None:
    run(node)
    assert restored(node)
    assert not (node / "state").exists()


def test_it_goes_on_where_it_was_interrupted(node: Path) -> None:
    (node / "state" / "pending").rename(node / "state" / "restoring")
    run(node)
    assert restored(node)


def test_what_was_confirmed_before_stays(node: Path) -> None:
    (node / "state" / "pending").rename(node / "state" / "confirmed")
    run(node)
    assert not restored(node)


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node below a folder, whose ufw is changed and not confirmed."""
    here = {"FOLDER": "state/firewall", "PENDING": "state/firewall/pending", "_BOOT_UNIT": "units/boot.service",
            "_BOOT_LINK": "units/wants/boot.service"}  # fmt: skip
    for name, path in here.items():
        monkeypatch.setattr(rollback, name, str(tmp_path / path))
    monkeypatch.setattr(rollback, "PATHS", (str(tmp_path / "ufw/ufw.conf"), str(tmp_path / "ufw/absent.rules")))
    monkeypatch.setattr(rollback, "_stop_timer", lambda: None)
    for folder in ("state/firewall/pending", "units/wants", "ufw"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ufw/ufw.conf").write_text("ENABLED=no\n")
    (tmp_path / "units/boot.service").touch()
    (tmp_path / "units/wants/boot.service").symlink_to(tmp_path / "units/boot.service")
    return tmp_path


def test_a_power_cut_after_the_confirmation_brings_nothing_back(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with disk_calls(changed) as calls:
        monkeypatch.setattr(rollback.shutil, "rmtree", lambda path: calls.append(f"rmtree {Path(path).name}"))
        assert rollback.disarm()
    assert calls == [
        "fsync ufw/ufw.conf", "fsync ufw",
        "replace state/firewall/confirmed", "fsync state/firewall",
        "unlink units/wants/boot.service", "fsync units/wants", "unlink units/boot.service", "fsync units",
        "rmtree firewall", "fsync state",
    ]  # fmt: skip


def test_what_the_node_has_taken_back_is_not_confirmed(changed: Path) -> None:
    (changed / "state/firewall/pending").rename(changed / "state/firewall/restoring")
    assert not rollback.disarm()
    assert (changed / "units/boot.service").exists()


def test_the_unit_at_boot_comes_before_ufw() -> None:
    assert "Before=ufw.service" in BOOT and f"ExecStart=/bin/sh {FOLDER}/rollback boot" in BOOT
