"""A container's log: every line once and in order, however often the connection breaks, whatever the node's clock says.

Before lines were found by their place, the first test below lost lines whenever the clock was set back.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from docker.errors import NotFound
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.cluster.engine import log_cursor
from launcher.cluster.engine.log_cursor import LogCursor
from launcher.ssh.connection import Trouble
from tests.support.cluster.engine import stamp

BREAKS: tuple[BaseException | None, ...] = (None, ConnectionResetError("reset"), EOFError(), struct.error("4 bytes"))
"""How the SDK ends a stream: as if the container had ended, with an error, or inside a piece's header."""
TORN = b"Error grabbing logs: invalid character '\\x00' looking for beginning of value\n"


class Printing:
    """An engine with a container that prints while it is asked, and whose log can be torn, over a line that breaks."""

    def __init__(
        self, lines: Sequence[bytes], *, prints: Sequence[int] = (), tear: int | None = None, skips: int = 0
    ) -> None:
        """Args:
        lines: all that it will print, each with its time stamp.
        prints: how many lines it prints before each answer; when they are used up, all the rest.
        tear: the log can't be read past this line from its beginning.
        skips: so many lines are left out where reading begins at the tear.
        """
        self.lines = lines
        self.printed = 0
        self.passes = 1 << 30
        """How many pieces the connection still lets pass."""
        self.ends: BaseException | None = None
        self.asked: list[int | str] = []
        self._prints = iter(prints)
        self._tear, self._skips = tear, skips
        self._word = TORN

    @property
    def api(self) -> "Printing":
        return self

    def logs(self, container: str, *, tail: int | str, follow: bool, **how: Any) -> Iterator[bytes]:
        assert how == {"stdout": True, "stderr": True, "stream": True, "timestamps": True}, "no time is asked for"
        self.asked.append(tail)
        if self.passes <= 0:
            raise ConnectionResetError("closed")
        self.printed = min(len(self.lines), self.printed + next(self._prints, 1 << 30))
        first = max(0, self.printed - tail) if isinstance(tail, int) else 0
        for number in range(first + (self._skips if first == self._tear else 0), self.printed):
            if self._tear is not None and first < self._tear == number:
                yield self._word
                return
            if self.passes <= 0:
                break
            self.passes -= 1
            yield self.lines[number]
        if self.passes <= 0 and self.ends is not None:
            raise self.ends


def follow(cursor: LogCursor, engine: Any) -> list[bytes]:
    texts = []
    try:
        for text in cursor.follow(engine, "c"):
            texts.append(text)
    except Trouble:
        pass
    return texts


def to_the_end(cursor: LogCursor, engine: Printing) -> list[bytes]:
    """Follow over a line that no longer breaks, until all is printed and nothing new comes."""
    texts: list[bytes] = []
    engine.passes = 1 << 30
    while True:
        texts += (more := follow(cursor, engine))
        if not more and engine.printed == len(engine.lines):
            return [*texts, *cursor.rest(engine, "c")]  # type: ignore[arg-type]


def line(at: float, text: str) -> bytes:
    return f"{stamp(at)} {text}\n".encode()


CLOCK = st.lists(st.sampled_from([0.0, 0.0, 0.001, 1.0, 7.0, -5.0, -3600.0, 3600.0]), max_size=40)
"""How far the node's clock goes, or is set, from one line to the next."""
CONNECTIONS = st.lists(st.tuples(st.integers(0, 25), st.sampled_from(BREAKS)), max_size=8)
"""How many pieces each connection lets pass, and how it ends."""
PRINTS = st.lists(st.integers(0, 12), max_size=20)


@given(CLOCK, CONNECTIONS, PRINTS)
@example([1.0] * 4 + [-3600.0] + [1.0] * 4, [(5, BREAKS[1])], [5])
def test_each_line_comes_once_and_in_order(
    clock: list[float], connections: list[tuple[int, BaseException | None]], prints: list[int]
) -> None:
    moments = itertools.accumulate(clock, initial=5000.0)
    lines = [line(at, f"line {number}") for number, at in enumerate(moments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_cursor, "_KEPT", 3)
        patch.setattr(log_cursor, "_SIZES", (6, 12, None))
        engine, cursor, texts = Printing(lines, prints=prints), LogCursor(), []
        for engine.passes, engine.ends in connections:
            texts += follow(cursor, engine)
        texts += to_the_end(cursor, engine)
        assert texts == [b"line %d\n" % number for number in range(len(lines))]
        assert not cursor.torn
        assert len(cursor._heard) <= 200


@given(st.integers(0, 30), CONNECTIONS, PRINTS)
def test_lines_alike_come_as_often_as_they_were_printed(
    count: int, connections: list[tuple[int, BaseException | None]], prints: list[int]
) -> None:
    engine, cursor, texts = Printing([line(0, "same")] * count, prints=prints), LogCursor(), []
    for engine.passes, engine.ends in connections:
        texts += follow(cursor, engine)
    assert texts + to_the_end(cursor, engine) == [b"same\n"] * count


@given(st.integers(1, 60), st.integers(1, 60), CONNECTIONS, PRINTS, st.booleans())
def test_a_torn_log_is_read_on_behind_the_tear(
    count: int, tear: int, connections: list[tuple[int, BaseException | None]], prints: list[int], says_so: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_cursor, "_KEPT", 3)
        patch.setattr(log_cursor, "_SIZES", (6, 12, None))
        lines = [line(number, f"line {number}") for number in range(count)]
        engine, cursor, texts = Printing(lines, prints=prints, tear=tear), LogCursor(), []
        engine._word = TORN if says_so else b""
        for engine.passes, engine.ends in connections:
            texts += follow(cursor, engine)
        texts += to_the_end(cursor, engine)
    numbers = [int(text.split()[1]) for text in texts if text.startswith(b"line")]
    assert numbers == sorted(set(numbers)), "none twice, all in order"
    lost = set(range(count)) - set(numbers)
    assert cursor.torn or not lost, "that lines are missing is known"
    assert count - 1 in numbers, "the last words are heard"
    assert texts.count(TORN) <= 1, "the engine's own word is passed on once"


def test_an_engine_that_goes_on_somewhere_behind_the_tear_is_asked_for_less() -> None:
    """Docker's reader does so where the lines that are asked for begin in the tear: all but the last few were lost."""
    engine, cursor = Printing([line(number, f"line {number}") for number in range(21)], tear=5, skips=9), LogCursor()
    texts = [*cursor.follow(engine, "c"), *cursor.rest(engine, "c")]
    assert [int(text.split()[1]) for text in texts if text.startswith(b"line")] == [*range(5), *range(6, 21)]


def test_what_was_heard_long_ago_is_not_asked_for_again() -> None:
    engine, cursor = Printing([line(number, "x") for number in range(4200)], prints=[4000, 0, 100]), LogCursor()
    assert len(follow(cursor, engine)) == 4000
    assert len(follow(cursor, engine)) == 200
    assert engine.asked == ["all", 1, 400, 400]


def test_what_was_printed_in_a_long_break_is_looked_for_further_and_further_back() -> None:
    engine, cursor = Printing([line(number, "x") for number in range(9000)], prints=[1000, 8000]), LogCursor()
    assert len(follow(cursor, engine)) == 1000
    assert len(follow(cursor, engine)) == 8000
    assert engine.asked == ["all", 1, 400, 3200, 25600, 400]


def test_a_log_that_somebody_empties_is_followed_from_its_new_beginning() -> None:
    engine, cursor = Printing([line(number, f"{number}") for number in range(6)], prints=[3, 0, 0, 0]), LogCursor()
    assert follow(cursor, engine) == [b"0\n", b"1\n", b"2\n"]
    engine.lines, engine.printed = engine.lines[3:], 0
    assert follow(cursor, engine) == []
    assert cursor.torn
    assert to_the_end(cursor, engine) == [b"3\n", b"4\n", b"5\n"]


def test_a_file_that_somebody_cuts_is_followed_from_the_cut() -> None:
    engine, cursor = Printing([line(number, f"{number}") for number in range(6)], prints=[3]), LogCursor()
    assert follow(cursor, engine) == [b"0\n", b"1\n", b"2\n"]
    engine.lines, engine.printed = engine.lines[4:], 0
    assert to_the_end(cursor, engine) == [b"4\n", b"5\n"]
    assert cursor.torn


def test_a_line_without_time_stamp_is_passed_on_as_it_is() -> None:
    engine, cursor = Printing([line(0, "a"), TORN[:-1], line(1, "b"), TORN[:-1]]), LogCursor()
    assert follow(cursor, engine) == [b"a\n", TORN, b"b\n"]
    assert cursor.torn


def test_a_line_keeps_what_looks_like_a_stamp() -> None:
    engine = Printing([line(0, "2020-01-01T00:00:00.000000000Z a b"), line(1, "no newline")[:-1]])
    assert follow(LogCursor(), engine) == [b"2020-01-01T00:00:00.000000000Z a b\n", b"no newline"]


def test_a_container_that_is_gone_is_for_the_caller_to_judge() -> None:
    class Gone(Printing):
        def logs(self, *_: Any, **__: Any) -> Any:
            raise NotFound("gone")

    gone: Any = Gone([])
    with pytest.raises(NotFound):
        list(LogCursor().follow(gone, "c"))
