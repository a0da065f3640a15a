"""The README's figures are those of the stored runs, and say when the code has changed since."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cli, sources
from benchmarks.publish import pages, readme
from benchmarks.result import Ratio, Result, Row
from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from tests.support.benchmark_results import MACHINE, WHOLE

REDRAW = "it isn't what the stored JSON and the present code say; redraw it: make bench ONLY=pages"


def stored() -> dict[str, Result]:
    return {path.stem: pages.stored(path)[0] for path in (ROOT / "docs/performance").glob("*.json")}


def test_the_readme_shows_what_is_stored(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_bytes((ROOT / "README.md").read_bytes())
    pages.redraw_readme(ROOT / "docs", page)
    assert page.read_bytes() == (ROOT / "README.md").read_bytes(), f"README.md: {REDRAW}"


def test_the_page_of_all_measurements_shows_what_is_stored(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "performance").mkdir(parents=True)
    for path in (ROOT / "docs/performance").glob("*.json"):
        (docs / "performance" / path.name).write_bytes(path.read_bytes())
    (docs / "performance.md").write_bytes((ROOT / "docs/performance.md").read_bytes())
    pages.redraw(docs)
    assert (docs / "performance.md").read_bytes() == (ROOT / "docs/performance.md").read_bytes(), REDRAW
    for path in (docs / "performance").glob("*.svg"):
        assert path.read_bytes() == (ROOT / "docs/performance" / path.name).read_bytes(), f"{path.name}: {REDRAW}"


def test_every_stored_measurement_names_the_code_it_measures() -> None:
    assert set(sources.MEASURED) == {*cli.DEFAULT, *cli.ON_DEMAND, *cli.ON_A_CLUSTER}
    assert set(stored()) <= set(sources.MEASURED)
    assert {one.result for one in readme.FIGURES} <= set(sources.MEASURED)
    for place in {place for places in sources.MEASURED.values() for place in places}:
        assert (ROOT / place).exists(), place


def test_a_changed_file_changes_the_fingerprint_and_its_time_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MEASURED", {"step": ("code", "lock.txt")})
    (tmp_path / "code/inner").mkdir(parents=True)
    code, lock = tmp_path / "code/inner/loop.py", tmp_path / "lock.txt"
    code.write_text("one")
    lock.write_text("torch")
    before = sources.fingerprint("step", tmp_path)
    assert sources.note("step", before, tmp_path) == ""
    code.touch()
    (tmp_path / "code/__pycache__").mkdir()
    (tmp_path / "code/__pycache__/loop.py").write_text("compiled")
    (tmp_path / "other.py").write_text("nothing to do with it")
    assert sources.fingerprint("step", tmp_path) == before
    for path in (code, lock):
        path.write_text("two")
        assert sources.note("step", before, tmp_path) == "; the code has changed since"
        before = sources.fingerprint("step", tmp_path)
    code.rename(code.with_name("moved.py"))
    assert sources.note("step", before, tmp_path)
    assert sources.note("step", "", tmp_path)  # from before fingerprints were stored


@pytest.mark.parametrize(
    ("value", "least", "shown"),
    [(1.044, None, "1.04"), (1.74, 1.8, "1.74 (goal missed: at least 1.8)"), (1.85, 1.8, "1.85"),
     (None, 1.8, "not measured yet")],
)  # fmt: skip
def test_a_ratio_is_shown_with_its_origin(value: float | None, least: float | None, shown: str) -> None:
    launch = replace(
        WHOLE,
        name="launch",
        command="make bench ONLY=launch",
        ratios=(Ratio(label="make train / shell script", value=value, least=least),),
    )
    lines = readme.table({"launch": (launch, replace(MACHINE, code=sources.fingerprint("launch")))}).splitlines()
    line = next(line for line in lines if "ONLY=launch" in line)
    assert line.endswith(f"| {shown} | `make bench ONLY=launch`: commit abc1234, 2026-01-31 |")
    assert sum("not measured yet" in line for line in lines) == len(readme.FIGURES) - (value is not None)


def test_a_row_is_shown_as_median_range_and_number_of_runs() -> None:
    label = "Fashion-MNIST recipe, training until 94%"
    gpu = replace(WHOLE, name="gpu", rows=(Row(label=label, unit="s", values=(3.0, 2.5, 2.75)),))
    assert "| 2.75 s (median; 2.50 to 3.00, n = 3) |" in readme.table({"gpu": (gpu, MACHINE)})
    assert "2026-01-31; the code has changed since |" in readme.table({"gpu": (gpu, MACHINE)})
    unmeasured = replace(gpu, rows=(Row(label=label, unit="s", values=(), note="no GPU here"),))
    assert "| no GPU here |" in readme.table({"gpu": (unmeasured, MACHINE)})


def test_a_figure_that_a_stored_result_lacks_is_named() -> None:
    with pytest.raises(RingmasterError, match=r"launch\.json has no 'make train / shell script'"):
        readme.table({"launch": (WHOLE, MACHINE)})


@pytest.mark.parametrize("page", ["", readme.BEGIN, f"{readme.END}{readme.BEGIN}", readme.BEGIN * 2 + readme.END])
def test_damaged_marks_are_named(page: str) -> None:
    with pytest.raises(RingmasterError, match=r"README\.md: needs <!-- bench:results --> once"):
        readme.with_results(page, {}, where="README.md")


def test_all_else_of_the_page_stays_and_no_page_is_made(tmp_path: Path) -> None:
    page = f"# A\r\n{readme.BEGIN}old{readme.END}  \n tail"
    text = readme.with_results(page, {}, where="README.md")
    assert text.startswith(f"# A\r\n{readme.BEGIN}\n| what |")
    assert text.endswith(f"|\n{readme.END}  \n tail")
    pages.redraw_readme(tmp_path, tmp_path / "README.md")
    assert not (tmp_path / "README.md").exists()
