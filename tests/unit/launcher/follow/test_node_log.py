"""What a log holds is what is read from it; memory holds only the end of what a rank printed."""

from pathlib import Path

from launcher.follow.frames import Lines
from launcher.follow.node_log import entry, read
from launcher.follow.node_state import Tail


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [
        Lines(rank=0, texts=[b"a", b"", b"\xff\r[1] b"]),
        Lines(rank=None, texts=[b"words"]),
        Lines(rank=12, texts=[b"%d" % number for number in range(1000)]),
        Lines(rank=12, texts=[b"and one"]),
    ]
    log = tmp_path / "node1.log"
    log.write_bytes(b"".join(map(entry, written)))
    assert log.read_bytes().startswith(b"[0] a\n[0] \n[0] \xff\r[1] b\n[agent] words\n[12] 0\n")
    assert list(read(log)) == written


def test_a_tail_is_short_whatever_is_printed() -> None:
    tail = Tail()
    for _ in range(3):
        tail.extend([b"x" * 1_000_000] * 2)
        tail.extend([b"%d" % number for number in range(2000)] + [b"\xff" + b"y" * 1_000_000])
    lines = list(tail)
    assert len(lines) == 1000 and sum(map(len, lines)) < 20_000
    assert lines[0] == "1001" and lines[-1].startswith("\ufffdyyy")
