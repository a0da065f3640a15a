"""What holds for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

from lab.host import engine
from tests.support.environment import required

# Hypothesis gives an example 200 ms: on a machine that others use too, a stall is no fault of what is tested.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


def pytest_configure(config: pytest.Config) -> None:
    """A typo in LAB must not turn required tests into skipped ones."""
    if os.environ.get("RINGMASTER_LAB", "") not in {"", "required"}:
        raise pytest.UsageError(f"LAB={os.environ['RINGMASTER_LAB']}: must be 'required' or empty")


@pytest.fixture(scope="session")
def an_engine() -> None:
    """A Docker engine: found; with LAB=required installed and started where there is none."""
    if required():
        engine.ensure()
    elif engine.connect() is None:
        pytest.skip("no Docker engine answers here (make test LAB=required installs and starts one)")
