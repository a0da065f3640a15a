"""What waits for a slow reader: order is kept, memory is bounded, only lines of ranks are ever skipped."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.follow.show import backlog as module
from launcher.follow.show.backlog import Backlog, SkippingBacklog, SpillingBacklog


def draw(node: str, rank: int, lines: Sequence[bytes]) -> bytes:
    return b"".join(f"{node}:{rank} ".encode() + line + b"\n" for line in lines)


def skipped(lines: Mapping[str, int]) -> bytes:
    return f"skipped {dict(sorted(lines.items()))}\n".encode()


def taken(backlog: Backlog, now: float = 0.0) -> list[bytes]:
    lines = []
    while portion := backlog.take(now):
        assert portion.endswith(b"\n")
        lines += portion.splitlines()
    assert not backlog.waits
    return lines


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


class TestSkipping:
    @pytest.fixture
    def backlog(self) -> SkippingBacklog:
        return SkippingBacklog(draw, skipped)

    def test_what_is_not_much_is_shown_whole_and_in_order(self, backlog: SkippingBacklog) -> None:
        backlog.put_lines("a", 0, numbered(0, 5000))
        backlog.put_text(b"note\n", urgent_at=0.0)
        backlog.put_lines("b", 1, numbered(0, 5))
        assert taken(backlog) == [*(b"a:0 %d" % n for n in range(5000)), b"note", *(b"b:1 %d" % n for n in range(5))]

    def test_behind_it_skips_the_oldest_lines_and_says_so_in_their_place(self, backlog: SkippingBacklog) -> None:
        backlog.put_text(b"first\n")
        backlog.put_lines("a", 0, numbered(0, 8000))
        backlog.put_text(b"second\n", urgent_at=0.0)
        backlog.put_lines("b", 1, numbered(0, 8000))
        backlog.put_text(b"third\n")
        lines = taken(backlog)
        assert lines[:2] == [b"first", b"skipped {'a': 6000}"]
        assert lines[2] == b"a:0 6000" and lines[2002] == b"second" and lines[-2:] == [b"b:1 7999", b"third"]
        assert len(lines) == 10_000 + 4

    def test_long_lines_count_by_their_bytes(self, backlog: SkippingBacklog) -> None:
        for number in range(100):
            backlog.put_lines("a", 0, [b"%d" % number + b"x" * 100_000])
        lines = taken(backlog)
        assert len(b"".join(lines)) < 2 << 20
        assert lines[0].startswith(b"skipped") and lines[-1].startswith(b"a:0 99x")

    def test_a_note_waits_for_little(self, backlog: SkippingBacklog) -> None:
        backlog.put_lines("a", 0, numbered(0, 9000))
        backlog.put_text(b"note\n", urgent_at=10.0)
        backlog.put_lines("a", 0, numbered(9000, 9100))
        first = backlog.take(10.0).splitlines()
        assert first[0] == b"a:0 0" and len(first) < 5000, "a portion"
        assert backlog.take(10.5).splitlines()[:2] == [b"skipped {'a': %d}" % (9000 - len(first)), b"note"]

    def test_boxes_and_tables_wait_for_what_is_before_them(self, backlog: SkippingBacklog) -> None:
        backlog.put_lines("a", 0, numbered(0, 9000))
        backlog.put_text(b"box\n")
        assert taken(backlog, 1e9)[-2:] == [b"a:0 8999", b"box"]

    @given(st.lists(st.integers(0, 9000) | st.sampled_from(["note", "box", "take"]), max_size=12))
    @example([0, "note"])
    @example([9000, "take", "note", 9000, 9000, "box", "note", "take", 9000])
    def test_every_line_is_shown_or_counted(self, steps: list[int | str]) -> None:
        backlog, lines, put, texts = SkippingBacklog(draw, skipped), list[bytes](), 0, 0
        for now, step in enumerate(steps):
            if isinstance(step, int):
                backlog.put_lines("a", 0, numbered(put, put + step))
                put += step
            elif step == "take":
                lines += backlog.take(float(now)).splitlines()
            else:
                backlog.put_text(b"text %d\n" % texts, urgent_at=float(now) if step == "note" else None)
                texts += 1
        lines += taken(backlog, 1e9)
        assert [line for line in lines if line.startswith(b"text")] == [b"text %d" % n for n in range(texts)]
        at = 0
        for line in lines:
            if line.startswith(b"skipped"):
                at += int(line.rpartition(b" ")[2].rstrip(b"}"))
            elif line.startswith(b"a:0 "):
                assert line == b"a:0 %d" % at
                at += 1
        assert at == put


class TestSpilling:
    @pytest.fixture
    def backlog(self, tmp_path: Path) -> SpillingBacklog:
        return SpillingBacklog(draw, skipped, tmp_path)

    def test_nothing_is_lost_and_memory_is_bounded(self, backlog: SpillingBacklog) -> None:
        long = [b"x" * 1000] * 1000
        for round_ in range(3):
            for number in range(12):
                backlog.put_lines("a", 0, [b"%d" % number, *long])
                backlog.put_text(b"text %d\n" % number)
            assert backlog._bytes <= module._IN_MEMORY_BYTES
            some = backlog.take(0.0)
            data = some + b"".join(iter(lambda: backlog.take(0.0), b""))
            assert data == b"".join(draw("a", 0, [b"%d" % n, *long]) + b"text %d\n" % n for n in range(12)), round_

    def test_a_full_disk_is_admitted(self, backlog: SpillingBacklog, monkeypatch: pytest.MonkeyPatch) -> None:
        class Full(io.BytesIO):
            def write(self, _data: Any) -> int:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(module.tempfile, "TemporaryFile", lambda **_: Full())
        long = [b"x" * 1000] * 1000
        for number in range(12):
            backlog.put_lines("a", 0, [b"%d" % number, *long])
        backlog.put_text(b"note\n", urgent_at=0.0)
        lines = taken(backlog)
        shown = sum(line.startswith(b"a:0") for line in lines)
        assert lines[shown:] == [b"skipped {'a': %d}" % (12 * 1001 - shown), b"note"]
        backlog.put_lines("a", 0, [b"later"])
        assert taken(backlog) == [b"a:0 later"]
