"""What holds for all tests."""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A typo in LAB must not turn required tests into skipped ones."""
    if os.environ.get("RINGMASTER_LAB", "") not in {"", "required"}:
        raise pytest.UsageError(f"LAB={os.environ['RINGMASTER_LAB']}: must be 'required' or empty")
