"""What a rank's log keeps of its output: lines, progress bars, texts that are drawn over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.on_node.rank import LineSplitter


class TestLines:
    def split(self, *chunks: bytes) -> list[bytes]:
        splitter = LineSplitter()
        fed = [line for now, chunk in enumerate(chunks) for line in splitter.feed(chunk, now / 10)]
        return [*fed, *splitter.finish()]

    def test_progress_bars_are_thinned_and_end_whole(self) -> None:
        redraws = [b"\r%d%%" % number for number in range(100)]
        lines = self.split(*redraws, b"\r100%\n", b"done\n")
        assert lines[-2:] == [b"100%", b"done"]
        assert len(lines) < 20

    def test_progress_bars_that_end_in_a_carriage_return_are_shown_too(self) -> None:
        lines = self.split(*[b"step %d\r" % number for number in range(50)])
        assert 3 < len(lines) < 10
        assert lines[-1] == b"step 49"

    def test_windows_line_ends(self) -> None:
        assert self.split(b"a\r\nb\r", b"\n") == [b"a", b"b"]

    def test_a_text_that_another_one_overwrites_is_kept(self) -> None:
        assert self.split(b"epoch 1 done\rnext\n") == [b"epoch 1 done", b"next"]
        assert self.split(b"loading\r", b"training\r", b"saving\n") == [b"loading", b"training", b"saving"]
        assert self.split("第一轮完成\r下一个\n".encode()) == ["第一轮完成".encode(), "下一个".encode()]

    def test_what_overwrites_itself_all_the_time_does_not_fill_the_log(self) -> None:
        lines = self.split(*[b"reading %s.txt\r" % bytes([97 + number % 26]) * 3 for number in range(3000)])
        assert len(lines) < 700, "300 s"

    def test_a_line_that_was_wiped_leaves_nothing(self) -> None:
        assert self.split(b"\r50%\r", b"    \r\x1b[K", b"done\n", b"\n", b" \n") == [b"50%", b"done", b"", b" "]

    @pytest.mark.parametrize("size", [1, 5, 10_000])
    def test_bars_below_each_other(self, size: int) -> None:
        """As tqdm draws them: it goes a line down, draws, and comes back up."""
        text = b"\router:   0%"
        for outer in range(3):
            for inner in range(50):
                text += b"\n\rinner: %3d%%\x1b[A" % (2 * inner)
            text += b"\n\r           \x1b[A\r            \rsaved %d\n\router: %3d%%" % (outer, 33 * outer + 34)
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        splitter = LineSplitter()
        fed = [line for number, chunk in enumerate(chunks) for line in splitter.feed(chunk, 3 * number / len(chunks))]
        lines = [*fed, *splitter.finish()]
        assert not any(b"\x1b" in line or b"\r" in line for line in lines)
        assert lines[0] == b"outer:   0%" and lines[-1] == b"outer: 100%"
        assert [line for line in lines if b"saved" in line] == [b"saved 0", b"saved 1", b"saved 2"]
        assert lines.count(b"inner:  98%") == 3 and len(lines) < 20

    @given(st.lists(st.sampled_from([b"a", b"b 1", b"\r", b"\n", b"\x1b[A", b"\x1b[3B", b"\x1b[", b"99999A", b" "])))
    def test_no_movement_of_the_cursor_confuses_it(self, pieces: list[bytes]) -> None:
        assert not any(b"\n" in line or b"\r" in line for line in self.split(*pieces))

    def test_colours_stay(self) -> None:
        assert self.split(b"\x1b[31mred\x1b[0m\n", b"\x1b[1mbold\rplain\n")[0] == b"\x1b[31mred\x1b[0m"

    def test_endless_lines_do_not_fill_the_memory(self) -> None:
        assert max(map(len, self.split(*[b"x" * 100_000] * 30))) < 2 << 20

    @given(st.lists(st.binary(max_size=30)))
    def test_without_carriage_returns_nothing_is_lost(self, chunks: list[bytes]) -> None:
        chunks = [chunk.replace(b"\r", b"").replace(b"\x1b", b"") for chunk in chunks]
        assert b"\n".join(self.split(*chunks)) == b"".join(chunks).removesuffix(b"\n")
