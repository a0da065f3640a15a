"""The figures in metrics.jsonl, whoever wrote it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.reporting.summary import RunFigures, read_records, summarize

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["kind", "event", "step", "epoch", "at", "time_s", "loss", "images_per_s", "test_accuracy", "path"]
RECORDS = st.lists(
    st.dictionaries(
        st.sampled_from(FIELDS) | st.text(), JSON | st.sampled_from(["epoch", "step", "event", "checkpoint"])
    )
)


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


@given(RECORDS)
def test_any_records_are_summarized(records: list[dict[str, Any]]) -> None:
    assert isinstance(summarize(records), RunFigures)


@given(RECORDS, st.binary(max_size=50), st.integers(0, 50))
def test_any_lines_are_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], torn: bytes, cut: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    lines = [json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join([*lines, torn, *(line[:cut] for line in lines[-1:])]))
    read = read_records(path)
    assert len(read) >= len(lines)
    summarize(read)


def test_the_launcher_can_use_it_without_torch() -> None:
    modules = "trainer.reporting.summary, trainer.reporting.page"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
