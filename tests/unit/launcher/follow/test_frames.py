"""Lines of one rank that follow each other stay together; the order of lines and events is what was printed."""

from launcher.follow.frames import Event, Lines, StreamReader
from launcher.on_node.rank import EVENT, FRAME, LINE, PIECE


def frame(rank: int, kind: bytes, text: bytes) -> bytes:
    return FRAME + b"%d" % rank + kind + text + b"\n"


def test_order_is_kept() -> None:
    data = b"".join(
        (
            *(frame(0, LINE, b"a"), frame(0, LINE, b"b"), frame(1, LINE, b"c"), b"agent\n", b"agent too\n"),
            *(frame(1, PIECE, b"d"), frame(0, LINE, b"e"), frame(1, PIECE, b"d"), frame(1, LINE, b"d")),
            *(frame(1, LINE, b"f"), frame(1, EVENT, b'{"event": "exited"}'), frame(1, LINE, b"g")),
        )
    )
    assert list(StreamReader().feed(data)) == [
        Lines(rank=0, texts=[b"a", b"b"]),
        Lines(rank=1, texts=[b"c"]),
        Lines(rank=None, texts=[b"agent", b"agent too"]),
        Lines(rank=0, texts=[b"e"]),
        Lines(rank=1, texts=[b"ddd", b"f"]),
        Event(rank=1, fields={"event": "exited"}),
        Lines(rank=1, texts=[b"g"]),
    ]


def test_an_event_that_is_cut_off_is_a_line() -> None:
    reader = StreamReader()
    cut = frame(1, EVENT, b'{"event": "exi').removesuffix(b"\n")
    assert [*reader.feed(cut), *reader.feed(b"")] == [Lines(rank=None, texts=[cut])]
