"""`make bench`: what is measured, what a failure does to the rest, and where results go."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import cli
from benchmarks.publish import readme
from benchmarks.result import Ratio, Result
from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from tests.support.benchmark_results import MACHINE, WHOLE

LAUNCH = Ratio(label="make train / shell script", value=1.04)


def interrupted(_quick: bool) -> Result:
    raise KeyboardInterrupt


def failed(_quick: bool) -> Result:
    raise RingmasterError("the loop failed", exit_code=ExitCode.CLUSTER)


def broken(_quick: bool) -> Result:
    raise ZeroDivisionError


def stopped(_quick: bool) -> Result:
    raise StoppedError


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Puts made-up measurements in the place of the real ones."""
    monkeypatch.setattr(cli, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(cli, "QUICK_DOCS", tmp_path / "quick")
    monkeypatch.setattr(cli.machine, "look", lambda: MACHINE)

    def put(**ways: Callable[[bool], Result]) -> None:
        for name, measure in ways.items():
            monkeypatch.setitem(sys.modules, f"made_up_{name}", SimpleNamespace(measure=measure))  # type: ignore[misc]
        monkeypatch.setattr(cli, "DEFAULT", {name: f"made_up_{name}" for name in ways})

    return put


def test_results_are_printed_and_go_to_the_docs(
    measurements: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurements(step=lambda quick: WHOLE)
    assert cli.run() == ExitCode.SUCCEEDED
    said = capsys.readouterr().out
    assert "naive  s  3       2  1 to 3" in said
    assert f"written down: step: {tmp_path}/docs/performance.md" in said
    assert (tmp_path / "docs/performance/step.json").exists()


def test_quick_ones_leave_the_docs_alone(measurements: Callable[..., None], tmp_path: Path) -> None:
    quicknesses = []
    measurements(step=lambda quick: quicknesses.append(quick) or WHOLE)
    assert cli.run(quick=True) == ExitCode.SUCCEEDED
    assert quicknesses == [True]
    assert not (tmp_path / "docs").exists()
    assert "`make bench ONLY=step QUICK=1`" in (tmp_path / "quick/performance.md").read_text()


@pytest.mark.parametrize("failure", [failed, broken])
def test_a_failure_is_named_and_the_others_go_on(
    measurements: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failure: Callable[[bool], Result],
) -> None:
    measurements(input=failure, step=lambda quick: WHOLE)
    assert cli.run() == ExitCode.FAILED
    assert "failed: input" in capsys.readouterr().err
    assert (tmp_path / "docs/performance/step.json").exists()


def test_ctrl_c_keeps_what_is_done(
    measurements: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurements(step=lambda quick: WHOLE, input=interrupted, never=broken)
    assert cli.run() == ExitCode.INTERRUPTED
    said = capsys.readouterr()
    assert "written down: step" in said.out
    assert "never" not in said.out + said.err
    assert (tmp_path / "docs/performance/step.json").exists()


def test_missed_promises_are_said_at_the_end_and_are_no_failure(
    measurements: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Ratio(label="naive / ours", value=1.5, least=2.0)
    measurements(step=lambda quick: replace(WHOLE, ratios=(slow,)), input=lambda quick: WHOLE)
    assert cli.run() == ExitCode.SUCCEEDED
    end = capsys.readouterr().out.split("[2/2]")[1]
    assert "promises missed:\n  step: naive / ours: 1.50 (at least 2: MISSED)\n" in end


def test_pages_alone_measures_nothing(
    measurements: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurements(step=lambda quick: WHOLE)
    cli.run()
    (tmp_path / "docs/performance.md").unlink()
    measurements(step=broken)
    assert cli.run(only="pages") == ExitCode.SUCCEEDED
    assert "redrawn: step" in capsys.readouterr().out
    assert "| naive | s | 3 |" in (tmp_path / "docs/performance.md").read_text()


@pytest.mark.parametrize(("quick", "limit"), [(False, 23 * 60), (True, 4.5 * 60)])
def test_all_of_it_is_estimated_to_take_no_longer_than_promised(quick: bool, limit: float) -> None:
    assert set(cli.ESTIMATES) == set(cli.DEFAULT)
    assert sum(each[quick] for each in cli.ESTIMATES.values()) <= limit


def test_the_estimate_is_in_words() -> None:
    assert cli.estimate(["launch"], quick=False) == "launch: not estimated"
    assert cli.estimate(["input"], quick=True) == f"about {cli.ESTIMATES['input'][1]} s on two cores"
    whole = cli.estimate([*cli.DEFAULT, "launch"], quick=False)
    assert whole.endswith(" minutes on two cores; launch: not estimated")


def test_being_told_to_end_is_no_failed_measurement(measurements: Callable[..., None]) -> None:
    measurements(step=stopped)
    with pytest.raises(StoppedError):
        cli.run()


def test_those_that_need_no_cluster_are_measured_unless_told_otherwise() -> None:
    assert cli.chosen("") == ["input", "step", "stream", "recipe", "scaling", "report", "gpu", "first-step"]
    assert cli.chosen("launch, step") == ["launch", "step"]


def test_an_unknown_name_is_refused_with_all_that_are_there() -> None:
    with pytest.raises(
        RingmasterError,
        match=r"no measurement 'stepp'; there are: input, .*, provision, delivery, launch, lines, playbook; and",
    ):
        cli.chosen("step,stepp")


def test_printed_ones_run_with_their_repetitions(
    measurements: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements()
    calls: list[int] = []
    monkeypatch.setitem(sys.modules, "made_up", SimpleNamespace(run=calls.append))  # type: ignore[misc]
    monkeypatch.setattr(cli, "PRINTED", {"lines": "made_up"})
    assert cli.run(only="lines") == ExitCode.SUCCEEDED
    assert cli.run(only="lines", quick=True) == ExitCode.SUCCEEDED
    assert calls == [cli.REPETITIONS, cli.QUICK_REPETITIONS]


def test_what_is_measured_on_a_cluster_is_given_the_inventory_and_written_down(
    measurements: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measurements()
    inventories: list[str] = []

    def measure(_quick: bool, inventory: str) -> Result:
        inventories.append(inventory)
        return replace(WHOLE, name="launch")

    monkeypatch.setitem(sys.modules, "made_up", SimpleNamespace(measure=measure))  # type: ignore[misc]
    monkeypatch.setattr(cli, "ON_A_CLUSTER", {"launch": "made_up"})
    assert cli.run(only="launch", inventory="mine.yml") == ExitCode.SUCCEEDED
    assert inventories == ["mine.yml"]
    assert (tmp_path / "docs/performance/launch.json").exists()


def test_a_measurement_redraws_the_readme_beside_docs_and_a_quick_one_does_not(
    measurements: Callable[..., None], tmp_path: Path
) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"# Ours\n\n{readme.BEGIN}\nold\n{readme.END}\n")
    measurements(recipe=lambda quick: replace(WHOLE, name="launch", ratios=(LAUNCH,)))
    cli.run(quick=True)
    assert "old" in page.read_text()
    assert cli.run() == ExitCode.SUCCEEDED
    assert "old" not in page.read_text()
    assert "| 1.04 | `make bench ONLY=step`: commit abc1234" in page.read_text()
