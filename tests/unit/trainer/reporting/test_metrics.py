import json
import math
from pathlib import Path

import pytest

from trainer.reporting import metrics
from trainer.reporting.metrics import MetricsWriter


def test_records_are_plain_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    writer.write("step", step=1, loss=math.nan, lr=math.inf)
    first = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))
    writer.event("done", step=1)
    assert first["kind"] == "step" and first["loss"] is None and first["lr"] is None
    second = json.loads(path.read_text().splitlines()[1])
    assert second["event"] == "done" and second["time_s"] >= first["time_s"] >= 0


def test_half_a_line_of_a_killed_predecessor_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "st')
    MetricsWriter(path).write("step", step=2)
    assert json.loads(path.read_text().splitlines()[1])["step"] == 2


def test_a_full_disk_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl")

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(metrics.os, "write", full)
        writer.write("step", step=1)
    writer.write("step", step=2)
    assert "No space left" in capsys.readouterr().err
    lines = (tmp_path / "metrics.jsonl").read_text().split()
    assert len(lines) > 0 and '"step": 2' in (tmp_path / "metrics.jsonl").read_text()


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    MetricsWriter(None).write("step", step=1)
    assert not list(tmp_path.iterdir())
