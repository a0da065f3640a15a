"""`make test` is the same each time; `make fuzz` finds what it doesn't try, and says it so that it can be kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fuzz

ROOT = Path(__file__).parents[2]
PROPERTY = """
import pathlib
import pytest
import hypothesis
import hypothesis.strategies as st

@pytest.mark.fuzz
@hypothesis.given(number=st.integers(), text=st.text())
def test_small(number, text):
    assert number < 1000

@hypothesis.given(number=st.integers())
def test_tried(number):
    with pathlib.Path(__file__).with_name("tried").open("a") as file:
        file.write(f"{number}\\n")
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """Property tests, under what holds for all tests."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    path = tmp_path / "test_property.py"
    path.write_text(PROPERTY)
    return path


def _tried(path: Path, **variables: str) -> str:
    environment = {**os.environ, fuzz.EXAMPLES: "", "PYTHONHASHSEED": "random", "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "pytest", "-q", "-k", "tried", str(path)]
    subprocess.run(command, cwd=path.parent, env=environment, check=True, capture_output=True)
    tried = path.with_name("tried")
    numbers = tried.read_text()
    tried.unlink()
    return numbers


@pytest.mark.parametrize("on_ci", [False, True])
def test_make_test_tries_the_same_each_time_and_make_fuzz_does_not(
    tests: Path, monkeypatch: pytest.MonkeyPatch, on_ci: bool
) -> None:
    """Hypothesis has other defaults where it sees a CI's variables."""
    monkeypatch.delenv("CI", raising=False)
    if on_ci:
        monkeypatch.setenv("CI", "true")
    assert _tried(tests) == _tried(tests)
    assert not (tests.parent / ".hypothesis" / "examples").exists(), "what was found once is not tried again"
    assert _tried(tests, **{fuzz.EXAMPLES: "100"}) != _tried(tests, **{fuzz.EXAMPLES: "100"})


def test_what_fails_is_said_as_it_can_be_kept(tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tests.parent)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CI", "true")
    found = fuzz.search([tests], examples=500)
    assert found.code == 1
    assert found.examples == [
        "test_small:\n@example(\n    number=1000,\n    text='',  # or any other generated value\n)"
    ]
    assert list((tests.parent / ".hypothesis" / "examples").iterdir()), "what was found is not kept"


def test_the_files_with_property_tests_are_found() -> None:
    assert ROOT / "tests/unit/trainer/reporting/test_page.py" in fuzz.files()
    assert Path(__file__) not in fuzz.files()
