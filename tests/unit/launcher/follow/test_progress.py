"""The live line follows metrics.jsonl, whoever writes it."""

import json
from pathlib import Path

import pytest

from launcher.follow.progress import MetricsTail, Progress
from launcher.follow.screen import duration


def test_records_are_followed_as_they_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert tail.look() == Progress()
    first = json.dumps({"kind": "step", "step": 10, "total_steps": 110, "time_s": 2.0, "loss": 1.5})
    path.write_text(first + "\n" + '{"kind": "step", "st')
    assert tail.look().step == 10
    with path.open("a") as file:
        file.write('ep": 60, "time_s": 12.0}\nnot json\n[1]\n')
    progress = tail.look()
    assert (progress.step, progress.loss, progress.eta_s) == (60, 1.5, pytest.approx(10.0))


def test_odd_values_are_passed_over() -> None:
    record = {"step": "7", "loss": None, "images_per_s": float("nan"), "epoch": True, "epochs": 3}
    assert Progress().after(record) == Progress(epochs=3)
    assert Progress().after({"step": 10**400, "loss": 10**400}) == Progress()


def test_no_line_however_odd_ends_the_job(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"[" * 100_000 + b"\n\xff\n" + b'{"loss": ' + b"9" * 400 + b'}\n{"step": 5}\n')
    assert MetricsTail(path).look().step == 5


def test_durations() -> None:
    assert [duration(each) for each in (4.26, 187, 7500)] == ["4.3 s", "3 min 07 s", "2 h 05 min"]
