"""The lab's messages to its user while it works."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print a message to standard error."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a piece of work that takes long, and say in the end how long it took."""
    say(f"{text} …")
    started = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - started:.0f} s")
