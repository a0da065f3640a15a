"""Measurements are written down between their marks, and nothing else of a page is touched."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.publish import pages
from launcher.base.errors import RingmasterError
from tests.support.benchmark_results import MACHINE, WHOLE

BEGIN, END = "<!-- bench:step -->", "<!-- /bench:step -->"
HAND = f"# Performance\n\nBy hand.  \r\n\n## Mine\n{BEGIN}\nold\n{END}\n\n\ttail without an end"


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_all_but_the_block_stays_byte_for_byte(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_bytes(HAND.encode())
    pages.publish(WHOLE, MACHINE, tmp_path)
    before, after = HAND.split(BEGIN)[0], HAND.split(END)[1]
    text = page.read_bytes().decode()
    assert text.startswith(before + BEGIN)
    assert text.endswith(END + after)
    assert "old" not in text
    assert "| naive | s | 3 | 2 | 1 to 3 |" in text


def test_the_block_says_command_machine_versions_and_commit(tmp_path: Path) -> None:
    pages.publish(WHOLE, MACHINE, tmp_path)
    text = (tmp_path / "performance.md").read_text()
    for word in (
        "`make bench ONLY=step`", "A CPU, 2 cores, 24 GiB, no GPU", "torch 2.15.0", "commit abc1234", "2026-01-31",
        "![C](performance/c.svg)", "(performance/step.json)",
    ):  # fmt: skip
        assert word in text


def test_a_page_without_marks_gets_a_heading_and_them_at_its_end(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nWords.\n")
    pages.publish(WHOLE, MACHINE, tmp_path)
    assert page.read_text().startswith(f"# Performance\n\nWords.\n\n## A step\n\n{BEGIN}\n")
    assert page.read_text().endswith(f"{END}\n")


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    pages.publish(WHOLE, MACHINE, tmp_path)
    before = state(tmp_path)
    assert sorted(before) == ["performance.md", "performance/c.svg", "performance/step.json"]
    result, machine = pages.stored(tmp_path / "performance" / "step.json")
    assert (result, machine) == (WHOLE, MACHINE)
    pages.publish(result, machine, tmp_path)
    assert state(tmp_path) == before


def test_two_measurements_have_a_block_each(tmp_path: Path) -> None:
    other = replace(WHOLE, name="step-two", title="Another", charts=())
    pages.publish(WHOLE, MACHINE, tmp_path)
    pages.publish(other, MACHINE, tmp_path)
    before = state(tmp_path)
    pages.publish(WHOLE, MACHINE, tmp_path)
    assert state(tmp_path) == before
    assert (tmp_path / "performance.md").read_text().count("| naive | s | 3 |") == 2


@pytest.mark.parametrize("page", [f"a\n{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}{BEGIN}{END}"])
def test_damaged_marks_are_named_and_nothing_is_written(tmp_path: Path, page: str) -> None:
    (tmp_path / "performance.md").write_text(page)
    with pytest.raises(RingmasterError, match=r"performance\.md: needs <!-- bench:step --> once"):
        pages.publish(WHOLE, MACHINE, tmp_path)
    assert (tmp_path / "performance.md").read_text() == page
    assert not list((tmp_path / "performance").iterdir())


EMPTY = replace(WHOLE, rows=(replace(WHOLE.rows[0], values=(), note="no GPU here"),), ratios=(), charts=())


def test_a_result_without_values_leaves_one_with_values_alone(tmp_path: Path) -> None:
    assert pages.publish(WHOLE, MACHINE, tmp_path)
    before = state(tmp_path)
    assert not pages.publish(EMPTY, MACHINE, tmp_path)
    assert state(tmp_path) == before


def test_a_result_without_values_is_written_where_there_is_none(tmp_path: Path) -> None:
    assert pages.publish(EMPTY, MACHINE, tmp_path)
    assert pages.publish(replace(EMPTY, title="Again"), MACHINE, tmp_path)
    assert "no GPU here" in (tmp_path / "performance.md").read_text()
    assert pages.publish(WHOLE, MACHINE, tmp_path)
    assert "no GPU here" not in (tmp_path / "performance.md").read_text()


def test_pages_are_written_again_from_what_is_stored(tmp_path: Path) -> None:
    pages.publish(WHOLE, MACHINE, tmp_path)
    pages.publish(replace(WHOLE, name="step-two", charts=()), MACHINE, tmp_path)
    page = tmp_path / "performance.md"
    good = page.read_text()
    page.write_text(good.replace("| naive | s | 3 |", "| damaged |"))
    (tmp_path / "performance/c.svg").unlink()
    assert pages.redraw(tmp_path) == ["step", "step-two"]
    assert page.read_text() == good
    assert (tmp_path / "performance/c.svg").exists()


def test_a_stored_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "performance").mkdir()
    (tmp_path / "performance/step.json").write_text("{}")
    with pytest.raises(RingmasterError, match=r"step\.json can't be read: .*make bench ONLY=step"):
        pages.redraw(tmp_path)


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "performance").write_text("a file in the folder's place")
    with pytest.raises(RingmasterError, match=r"performance can't be written: File exists"):
        pages.publish(WHOLE, MACHINE, tmp_path)


def test_charts_are_whole_documents(tmp_path: Path) -> None:
    pages.publish(WHOLE, MACHINE, tmp_path)
    assert ElementTree.parse(tmp_path / "performance" / "c.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  (our own)
