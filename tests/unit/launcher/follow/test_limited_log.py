"""A log that a chatty program can't fill the disk with: its beginning and its end are kept."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from launcher.follow.frames import Lines
from launcher.follow.limited_log import LimitedLog
from launcher.follow.node_log import read
from launcher.follow.node_state import missing_of


def write(path: Path, lines: list[bytes], most_bytes: int) -> tuple[LimitedLog, int]:
    """Return the closed log, and the most that its files held on the way."""
    log, most = LimitedLog(path, most_bytes), 0
    for line in lines:
        log.write(line)
        log.flush()
        most = max(most, sum(each.stat().st_size for each in path.parent.iterdir()))
    log.close()
    return log, most


def test_the_beginning_and_the_end_are_kept_and_a_line_says_what_is_missing(tmp_path: Path) -> None:
    lines = [b"[0] %06d\n" % number for number in range(2000)]
    log, most = write(tmp_path / "node 1.log", lines, 4000)
    held = (tmp_path / "node 1.log").read_bytes()
    assert most < 4300 and len(held) < 4400, "the lines that say so come on top"
    assert held.startswith(b"".join(lines[:100])) and held.endswith(b"".join(lines[-100:]))
    kept = sum(text in held for text in lines)
    assert b"[ringmaster] %d lines are missing here\n" % (2000 - kept) in held
    assert log.missing_lines == 2000 - kept
    assert [each.name for each in tmp_path.iterdir()] == ["node 1.log"]
    assert f"{2000 - kept:,} lines" in (missing_of(log) or "")
    assert sum(len(each.texts) for each in read(tmp_path / "node 1.log") if each.rank == 0) == kept


def test_a_log_that_stays_below_is_as_it_was_written(tmp_path: Path) -> None:
    lines = [b"[0] %06d\n" % number for number in range(100)]
    log, _ = write(tmp_path / "log", lines, 1 << 20)
    assert (tmp_path / "log").read_bytes() == b"".join(lines)
    assert missing_of(log) is None
    assert list(read(tmp_path / "log")) == [Lines(rank=0, texts=[line[4:-1] for line in lines])]


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(8, 400))
def test_every_line_is_kept_or_counted(tmp_path_factory: object, sizes: list[int], most_bytes: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log"  # type: ignore[attr-defined]
    lines = [b"[0] %d %s\n" % (number, b"x" * size) for number, size in enumerate(sizes)]
    log, _ = write(path, lines, most_bytes)
    held = path.read_bytes().splitlines(keepends=True)
    assert len([line for line in held if line in lines]) + log.missing_lines == len(lines)
    assert not lines or held[-1] == lines[-1]
