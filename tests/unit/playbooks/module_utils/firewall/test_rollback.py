"""The script that puts ufw back, in folders of its own; the real thing is tried in the lab."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.firewall.rollback import BOOT, FOLDER, SCRIPT
from ansible.module_utils.ringmaster.firewall.rules import PATHS


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


def test_the_unit_at_boot_comes_before_ufw() -> None:
    assert "Before=ufw.service" in BOOT and f"ExecStart=/bin/sh {FOLDER}/rollback boot" in BOOT
