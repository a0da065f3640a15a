"""A container's log: every line once and in order, however often the connection breaks."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from docker.errors import NotFound
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.engine.containers import unix_time
from launcher.cluster.engine.log_cursor import LogCursor
from launcher.ssh.connection import Trouble
from tests.support.engine import MOMENT, stamp

BREAKS: tuple[BaseException | None, ...] = (None, ConnectionResetError("reset"), EOFError(), struct.error("4 bytes"))
"""How the SDK ends a stream: as if the container had ended, with an error, or inside a piece's header."""


class PrintedSoFar:
    """An engine that has a container's lines: `(stamp, text)`, oldest first."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.passes = 1 << 30
        self.ends: BaseException | None = None
        self.calls: list[dict[str, Any]] = []

    @property
    def api(self) -> "PrintedSoFar":
        return self

    def logs(self, container: str, *, since: int = 0, timestamps: bool, follow: bool, **how: Any) -> Iterator[bytes]:
        assert timestamps and follow and how == {"stdout": True, "stderr": True, "stream": True}
        self.calls.append({"container": container, "since": since})
        lines_since = [(at, text) for at, text in self.lines if unix_time(at) >= since]
        for at, text in lines_since[: self.passes]:
            yield at.encode() + b" " + text
        if self.ends:
            raise self.ends


def follow(cursor: LogCursor, engine: Any) -> list[bytes]:
    texts = []
    try:
        for text in cursor.follow(engine, "c"):
            texts.append(text)
    except Trouble:
        pass
    return texts


# Nanoseconds after MOMENT: few, so that many lines have the same stamp, and some of them are in the next second.
STEPS = st.lists(st.sampled_from([0, 0, 0, 1, 499_999_999, 1_000_000_000]), max_size=30)
LATE = st.lists(st.sampled_from([0, 0, 0, 1, 900_000_000, 1_999_999_999]), min_size=30, max_size=30)
"""By how many nanoseconds a line's stamp may be older than those before it: two streams are written side by side."""
CONNECTIONS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from(BREAKS)), max_size=8)


def nanoseconds(passed: int) -> str:
    seconds, rest = divmod(passed, 1_000_000_000)
    return f"{stamp(seconds)[:19]}.{rest:09d}Z"


@given(STEPS, LATE, CONNECTIONS, st.booleans())
def test_each_line_comes_once_and_in_order(
    steps: list[int], late: list[int], connections: list[tuple[int, int, BaseException | None]], alike: bool
) -> None:
    moments = [2_000_000_000 + sum(steps[: number + 1]) - late[number] for number in range(len(steps))]
    texts = [b"same\n" if alike else b"line %d\n" % number for number in range(len(steps))]
    lines = [(nanoseconds(moment), text) for moment, text in zip(moments, texts, strict=True)]
    engine, cursor, texts = PrintedSoFar(), LogCursor(), []
    for printed, passes, ends in [*connections, (len(lines), 1 << 30, None)]:
        engine.lines = lines[: len(engine.lines) + printed]
        engine.passes, engine.ends = passes, ends
        texts += follow(cursor, engine)
    assert texts == [text for _, text in lines]


def test_what_was_seen_long_ago_is_not_asked_for_again() -> None:
    engine, cursor = PrintedSoFar(), LogCursor()
    engine.lines = [(nanoseconds(0), b"a\n"), (nanoseconds(90_500_000_000), b"b\n")]
    assert follow(cursor, engine) == [b"a\n", b"b\n"]
    assert follow(cursor, engine) == []
    assert [each["since"] for each in engine.calls] == [0, int(MOMENT) + 88], "a little earlier than the last"


def test_a_line_keeps_what_looks_like_a_stamp() -> None:
    engine = PrintedSoFar()
    engine.lines = [(nanoseconds(0), b"2020-01-01T00:00:00.000000000Z a b\n"), (nanoseconds(1), b"no newline")]
    assert follow(LogCursor(), engine) == [text for _, text in engine.lines]


def test_a_container_that_is_gone_is_for_the_caller_to_judge() -> None:
    class Gone(PrintedSoFar):
        def logs(self, *_: Any, **__: Any) -> Any:
            raise NotFound("gone")

    gone: Any = Gone()
    with pytest.raises(NotFound):
        list(LogCursor().follow(gone, "c"))
