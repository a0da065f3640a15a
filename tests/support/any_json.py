"""Whatever a script may write into metrics.jsonl."""

import json
from typing import Any

from hypothesis import strategies as st

FIELDS = (
    *(
        "kind",
        "event",
        "step",
        "total_steps",
        "epoch",
        "epochs",
        "at",
        "time_s",
        "loss",
        "images_per_s",
        "test_accuracy",
    ),
    *("test_loss", "path", "message", "dataset", "lr", "world_size"),
)
LARGE = (10**400, -(10**400), 2**53, -1, 1.7e308, -1.7e308, 1e30, 1e29, 5e-324, float("nan"), float("inf"))
ODD = (
    "\ud800",
    "\udcff",
    "\x00",
    "\x1b[2J",
    "\ufffe",
    "</svg><script>",
    "'\"&<>",
    "[/bold]",
    "%s {0} \\",
    "\u202e",
    "",
)


def deep(depth: int) -> list[Any]:
    """Return lists in lists."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


DEEP = deep(900)
"""For tests with a fixed example: Hypothesis can't print it."""
NUMBERS = st.integers() | st.floats() | st.integers(-3, 3) | st.sampled_from(LARGE)
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(ODD)
SIMPLE = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
KINDS = st.sampled_from(["epoch", "step", "event", "checkpoint", "start", "done", "warning", "failure"])
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(FIELDS) | TEXTS, KINDS | NUMBERS | VALUES, max_size=8)
    | st.fixed_dictionaries({"step": NUMBERS, "loss": NUMBERS, "time_s": NUMBERS, "at": NUMBERS}),
    max_size=8,
)


def lines(records: list[dict[str, Any]]) -> bytes:
    """Return records as a script writes them: with NaN, Infinity, lone surrogates, one key twice."""
    return b"".join(_line(record) + b"\n" for record in records)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record)
    return text.encode() if text == "{}" else f'{{"step": 1, {text[1:]}'.encode()
