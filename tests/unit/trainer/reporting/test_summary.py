"""The figures in metrics.jsonl, whoever wrote it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.any_json import RECORDS, lines
from trainer.reporting.summary import RunFigures, last_checkpoint, read_records, summarize


def epoch(number: int, rate: float, accuracy: float | None = None) -> dict[str, Any]:
    return {"kind": "epoch", "epoch": number, "step": number * 10, "images_per_s": rate, "test_accuracy": accuracy}


def test_lines_that_are_no_whole_objects_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    deep = b"[" * 100_000
    path.write_bytes(
        b'{"step": 1}\n\n[1, 2]\nhello\n"text"\n\xff\xfe\n' + deep + b'\n{"loss": NaN}\r\n{"step": 2}\n{"st'
    )
    records = read_records(path)
    assert [record.get("step") for record in records] == [1, None, 2]


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none.jsonl") == []
    assert read_records(tmp_path) == []


def test_no_records_give_no_figures() -> None:
    assert set(vars(summarize([])).values()) == {None}


@pytest.mark.parametrize(
    ("rates", "expected"), [([100.0], 100.0), ([10.0, 100.0], 100.0), ([1.0, 80.0, 200.0, 90.0], 90.0)]
)
def test_throughput_is_the_median_of_the_steady_epochs(rates: list[float], expected: float) -> None:
    steps = [{"kind": "step", "step": 1, "images_per_s": 5.0}]
    assert summarize(steps + [epoch(index, rate) for index, rate in enumerate(rates, 1)]).images_per_s == expected


def test_a_run_that_ended_in_its_first_epoch_takes_throughput_from_its_steps() -> None:
    records = [{"kind": "step", "step": step, "images_per_s": rate} for step, rate in ((1, 3.0), (9, 50.0), (20, 60.0))]
    assert summarize(records).images_per_s == 55


def test_the_figures_of_a_run() -> None:
    records = [
        {"kind": "event", "event": "start", "at": 1000.0},
        {"kind": "step", "step": 1, "at": 1003.5, "loss": 2.3, "images_per_s": 50.0},
        {"kind": "event", "event": "checkpoint", "step": 5, "path": "a.pt", "at": 1004.0},
        epoch(1, 90.0, 0.8) | {"loss": 0.9},
        {"kind": "event", "event": "checkpoint", "step": 10, "path": "b.pt", "at": 1006.0},
        epoch(2, 100.0, 0.9) | {"loss": float("nan")},
        {"kind": "event", "event": "done", "step": 20, "at": 1010.0},
    ]
    assert summarize(records) == RunFigures(
        images_per_s=100.0, test_accuracy=0.9, epochs=2, first_step_at=1003.5, step=20, checkpoint="b.pt", loss=0.9
    )


def test_records_of_a_users_script_with_few_fields() -> None:
    figures = summarize([{"step": 0, "loss": 3}, {"step": 1, "loss": 2}, {"step": "x", "loss": True}])
    assert (figures.step, figures.loss, figures.epochs, figures.first_step_at) == (1, 2.0, None, None)


@example(records=[{"kind": "epoch", "images_per_s": 1.7e308}] * 3)
@example(records=[{"step": 1.7e308, "at": 1.7e308}, {"kind": "epoch", "epoch": 1.7e308}])
@given(records=RECORDS)
def test_any_records_make_figures_that_json_has(records: list[dict[str, Any]]) -> None:
    figures = vars(summarize(records))
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert all(abs(figures[name] or 0) < 2**53 for name in ("step", "epochs"))


@example(records=[{"step": 10**400, "path": "\ud800", "loss": math.nan}], torn=b"\xff", cut=0)
@given(records=RECORDS, torn=st.binary(max_size=50), cut=st.integers(0, 50))
def test_any_lines_are_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], torn: bytes, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    whole = lines(records)
    path.write_bytes(whole + torn + b"\n" + whole[:cut])
    read = read_records(path)
    assert len(read) >= len(records)
    summarize(read)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert read_records(tmp_path / "metrics.jsonl") == []


def test_the_last_checkpoint_is_one_that_there_is() -> None:
    records = [{"event": "checkpoint", "path": path} for path in ("a", "b", 3, "c")]
    assert last_checkpoint(records, lambda path: path != "c") == "b"
    assert last_checkpoint(records, lambda path: False) is None


def test_the_launcher_can_use_it_without_torch() -> None:
    modules = "trainer.reporting.summary, trainer.reporting.page"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
