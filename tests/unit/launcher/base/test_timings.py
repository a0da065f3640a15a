"""Where the time of a start goes."""

import json
from pathlib import Path

import pytest

from launcher.base import timings


def test_each_phase_is_noted_once_and_written_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "_marks", [])
    moments = iter([10.25, 11.0])
    monkeypatch.setattr(timings.time, "time", lambda: next(moments))
    for name in ("inventory read", "connected", "connected"):
        timings.mark(name)
    timings.write(10.0)  # no file is named yet
    monkeypatch.setenv(timings.VARIABLE, str(tmp_path / "times.json"))
    timings.write(10.0)
    assert json.loads((tmp_path / "times.json").read_text()) == {"inventory read": 0.25, "connected": 1.0}


def test_a_duration_counts_from_the_end_of_the_phase_before() -> None:
    assert timings.durations([("a", 0.25), ("b", 1.0)]) == [("a", 0.25), ("b", 0.75)]
