"""What the environment asks of the tests."""

import os


def required() -> bool:
    return os.environ.get("RINGMASTER_LAB") == "required"


def kept() -> bool:
    """While tests are written: use the tests' labs again as they are, and leave them up for the next run."""
    return os.environ.get("RINGMASTER_LAB_REUSE") == "1"
