"""`make fuzz`: random examples for the property tests, round after round, until the time is over or one fails.

`make test` tries the same examples each time. What is found here is kept in .hypothesis, and tried first by the next
`make fuzz`; written into the test as `@example`, it is tried by `make test`, too.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
EXAMPLES = "RINGMASTER_FUZZ"
"""Names the variable that tells tests/conftest.py to try random examples, and how many of them for each test."""
ROUND_EXAMPLES = 300
ROUND_LIMIT = 1200
"""Seconds after which a round hangs."""

_IMPORT = re.compile(r"^from hypothesis import .*\bgiven\b", re.MULTILINE)
_FAILED = re.compile(
    r"^E?\s*(?:Falsifying example|Failing test case): (\w+)\(\n(.*?)^E?\s*\)$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a round of examples came to."""

    code: int
    """The exit code of pytest."""
    output: str

    @property
    def examples(self) -> list[str]:
        """The examples that failed, to be pasted above their tests."""
        found = _FAILED.findall(self.output)
        return [f"{test}:\n@example(\n{_unmarked(arguments)})" for test, arguments in dict(found).items()]


def _unmarked(lines: str) -> str:
    """Return lines of a report without pytest's mark at their start."""
    return "".join(f"    {line.removeprefix('E').strip()}\n" for line in lines.splitlines())


def files() -> list[Path]:
    """Return the files that have property tests."""
    return sorted(path for path in TESTS.rglob("test_*.py") if _IMPORT.search(path.read_text(encoding="utf-8")))


def search(paths: Sequence[Path], examples: int) -> Round:
    """Run the property tests of these files once, each with so many random examples, or until one fails.

    Hypothesis draws the seeds: under a seed of ours it would neither keep what fails nor try what was kept.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0", "-m", "fuzz", *map(str, paths)],
        env={**os.environ, EXAMPLES: str(examples)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ROUND_LIMIT,
    )
    return Round(code=ended.returncode, output=ended.stdout)


def main(words: Sequence[str] | None = None) -> int:
    """Search for the minutes in `words`; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=lambda word: float(word or 10), default=10.0)
    end = time.monotonic() + 60 * parser.parse_args(words).minutes
    while (since := time.monotonic()) < end:
        found = search(files(), ROUND_EXAMPLES)
        if found.code:
            print(found.output)
            print("add to its test what failed, then mend it:\n")
            print("\n\n".join(found.examples) or "(see above)")
            return 1
        count = found.output.strip().splitlines()[-1]
        print(f"{count}, {ROUND_EXAMPLES} examples a test, {time.monotonic() - since:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
