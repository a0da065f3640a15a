"""Fixtures that run the real commands in this checkout."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from tests.e2e.jobs import Trainer


@pytest.fixture(scope="session")
def train() -> Iterator[Trainer]:
    trainer = Trainer()
    latest = ROOT / "runs" / "latest"
    before = latest.readlink() if latest.is_symlink() else None
    yield trainer
    trainer.clean()
    latest.unlink(missing_ok=True)
    if before is not None:
        latest.symlink_to(before)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a user's script into a folder outside the repository, with a space in its path."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / "user's own" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write
