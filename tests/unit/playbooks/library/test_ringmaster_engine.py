"""The engine's start has a limit."""

from pathlib import Path

import pytest
import ringmaster_engine  # type: ignore[import-not-found]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl, as a script that a test writes; journalctl says nothing."""
    for name in ("systemctl", "journalctl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "systemctl"


def test_an_engine_that_never_says_that_it_is_ready(systemctl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl.write_text('#!/bin/sh\n[ "$1" = start ] && exec sleep 600\nexit 0\n')
    monkeypatch.setattr(ringmaster_engine, "_SETTLED", 0.1)
    with pytest.raises(ValueError, match=r"^the engine doesn't start in 0.1 s: see `journalctl -u docker.service`$"):
        ringmaster_engine.systemctl("start")


def test_an_engine_that_refuses_says_why(systemctl: Path) -> None:
    systemctl.write_text('#!/bin/sh\n[ "$1" = start ] || exit 0\necho no such unit >&2\nexit 5\n')
    with pytest.raises(
        ValueError, match=r"^the engine doesn't start: systemctl start docker.service: no such unit; see"
    ):
        ringmaster_engine.systemctl("start")
