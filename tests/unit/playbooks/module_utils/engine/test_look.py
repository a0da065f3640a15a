"""Which engine a node has."""

from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.engine import look


@pytest.mark.parametrize(
    ("program", "podman"),
    [
        ("echo 'podman version 4.3.1'", "podman version 4.3.1"),
        ("echo Emulate Docker CLI using podman. >&2; echo podman version 5.0.0", "podman version 5.0.0"),
        ("echo 'Docker version 20.10.24+dfsg1, build 297e128'", ""),
        ("exit 1", ""),
        (None, ""),
    ],
)
def test_podmans_docker_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, podman: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if program is not None:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "docker").chmod(0o755)
    assert look.podman() == podman


def test_a_users_own_engine_counts_only_where_the_systems_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1000").mkdir()
    (tmp_path / "1000" / "docker.pid").write_text("4711")
    monkeypatch.setattr(look, "ROOTLESS", f"{tmp_path}/*/docker.pid")
    monkeypatch.setattr(look, "ask", lambda *_: None)
    assert look.look_engine("root")["engine"]["rootless"] == [f"{tmp_path}/1000/docker.pid"]
    monkeypatch.setattr(look, "ask", lambda *_: [{"Version": "20.10.24"}, []])
    assert look.look_engine("root")["engine"]["rootless"] == []
