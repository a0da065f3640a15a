"""The live line follows metrics.jsonl, whoever writes it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from launcher.follow.progress import MetricsTail, Progress
from launcher.follow.show.screen import duration
from tests.support.any_json import RECORDS, lines


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


@example(records=[{"step": 1, "time_s": -1.7e308}, {"step": 2, "time_s": 1.7e308, "total_steps": 10}])
@example(records=[{"step": 1, "time_s": 0}, {"step": 2, "time_s": 1e300, "total_steps": 10}])
@example(records=[{"step": 9, "time_s": 0}, {"step": 10, "time_s": -5, "total_steps": 90}])
@given(records=RECORDS)
def test_whatever_is_written_can_be_shown(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "followed.jsonl"
    path.unlink(missing_ok=True)
    tail = MetricsTail(path)
    for record in records:
        with path.open("ab") as file:
            file.write(lines([record]))
        progress = tail.look()
        assert progress.eta_s is None or duration(progress.eta_s)


def test_a_file_that_begins_anew_is_followed_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    path.write_text('{"step": 100, "loss": 1.0}\n')
    assert tail.look().step == 100
    path.write_text('{"step": 1}\n')
    assert tail.look().step == 1


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert MetricsTail(tmp_path / "metrics.jsonl").look() == Progress()


def test_durations() -> None:
    assert [duration(each) for each in (4.26, 187, 7500)] == ["4.3 s", "3 min 07 s", "2 h 05 min"]
