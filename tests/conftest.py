"""What holds for all tests."""

import os
import random
import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from lab.host import engine
from launcher.base import caller
from tests.support.environment import required
from tests.support.fuzz import EXAMPLES

# Hypothesis gives an example 200 ms: on a machine that others use too, a stall is no fault of what is tested. Its
# defaults are others where it sees a CI's variables, so that both profiles say all of what they want.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# `make test` must not hang on the draw of the day: the same examples each time, whatever was found here before.
settings.register_profile("the same each time", COMMON, derandomize=True, database=None)
settings.register_profile(
    "random",
    COMMON,
    max_examples=int(os.environ.get(EXAMPLES) or 100),
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.load_profile("random" if os.environ.get(EXAMPLES) else "the same each time")

os.environ.pop(caller.TOLD, None)  # from `make test`: to a test's own folder, it would be where the user called from


def pytest_configure(config: pytest.Config) -> None:
    """A typo in LAB must not turn required tests into skipped ones."""
    if os.environ.get("RINGMASTER_LAB", "") not in {"", "required"}:
        raise pytest.UsageError(f"LAB={os.environ['RINGMASTER_LAB']}: must be 'required' or empty")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the property tests, which `make fuzz` runs."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("fuzz")


@pytest.fixture(autouse=True)
def _the_same_numbers_each_time() -> None:
    """Numbers that a test draws itself are the same each time, whichever tests ran before it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def an_engine() -> None:
    """A Docker engine: found; with LAB=required installed and started where there is none."""
    if required():
        engine.ensure()
    elif engine.connect() is None:
        pytest.skip("no Docker engine answers here (make test LAB=required installs and starts one)")
