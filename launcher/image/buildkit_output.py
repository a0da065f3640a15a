"""Reads what BuildKit prints while it builds (`--progress=plain`); makes a line of each step that took a while. Pure.

Its lines begin with the step's number: `#8 [packages 1/1] RUN …` begins a step, `#8 12.3 text` is its output, `#8 DONE
38.6s` or `#8 CACHED` ends it. A step of a stage that is not one of ours is shown with BuildKit's own words.
"""

import re
from collections import deque

_LINE = re.compile(r"#(\d+) (.*)")
_NOISE = re.compile(r"#\d+ (sha256:|CACHED|DONE|\[internal\])")
_DONE = re.compile(r"DONE (\d+\.\d+)s")
_STAGE = re.compile(r"\[(?:\S+ )?(\w+) +\d+/\d+\] (\w+)")
_NAMES = {
    "runtime": "the system's packages",
    "installer": "the installer",
    "packages": "PyTorch and what it needs",
    "requirements": "what your program needs",
    "image": "the trainer",
    "exporting to image": "writing the layers",
}
_WORTH_S = 0.5
_KEPT = 40


class Steps:
    """The steps of a build, as far as its output was read."""

    def __init__(self, current: str = "starting") -> None:
        self.current = current
        """The name of the step that is running."""
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._names: dict[str, str] = {}
        self._partial = ""

    @property
    def last(self) -> list[str]:
        """The last lines that say something, to show if the build fails."""
        return [*self._last, *filter(None, [self._partial])]

    def feed(self, data: bytes) -> list[str]:
        """Take in a piece of output; return the lines to show."""
        *lines, self._partial = (self._partial + data.decode(errors="replace")).split("\n")
        return [shown for line in lines if (shown := self._line(line.rstrip()))]

    def _line(self, line: str) -> str:
        if line and not _NOISE.match(line):
            self._last.append(line)
        numbered = _LINE.fullmatch(line)
        if not numbered:
            return ""
        number, text = numbered.groups()
        if number not in self._names:
            self._names[number] = _named(text)
            self.current = self._names[number] or self.current
        done = _DONE.fullmatch(text)
        name = self._names[number]
        return f"  {name}: {float(done[1]):.1f} s" if done and name and float(done[1]) >= _WORTH_S else ""


def _named(text: str) -> str:
    """Return a step's name; BuildKit's own small steps (`[internal] …`) have none worth showing."""
    stage = _STAGE.match(text)
    if stage:
        return _NAMES.get(stage[1], text[:60]) if stage[2] == "RUN" else ""
    return _NAMES.get(text, "")
