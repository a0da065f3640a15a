"""What the last lines of a rank say about the exception that ended it. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")  # torch puts it before every line of an uncaught exception
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # Python 3.13 and rich colour their tracebacks
_EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Timeout|StopIteration|Group)\b"
)
_CLASS_LIKE = re.compile(r"^(?:\w+\.)*_?[A-Z]\w*(?:: |:?$)")
_START = re.compile(r"^(?:  \+ Exception Group |╭─+ )?Traceback \(most recent call last\)")
_ORIGINAL = "Original Traceback (most recent call last)"
_BOX = re.compile(r"^[│╭╰]")
_CHAINS = {
    "The above exception was the direct cause of the following exception:": "caused by",
    "During handling of the above exception, another exception occurred:": "while handling",
}
_CAUGHT_IN = re.compile(r"Caught \S+ in (.+?)\.?$")
_OF_PROCESS = re.compile(r"^-- Process (\d+) terminated with the following error:")
_IN_GROUP = re.compile(r"^\s+\| (\S.*)")
_GROUP_LINE = re.compile(r"\(\d+ sub-exceptions?\)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+)')
_UNRAISED = re.compile(r"^(?:SyntaxError|IndentationError|TabError): ")  # of the script itself: without a traceback
_AFTERWARDS = re.compile(r"^\[?[WEIF]\d{4} |^\[W|^Fatal Python error|^terminate called|^Set the environment variable")
"""What libraries print after the exception's message."""
_MESSAGE_LINES = 40
_LONGEST = 500
# What the C++ and C libraries print about a thread that ends with Python, as one of Gloo's may (docs/decisions/0029).
_LATE_ABORT = (
    "terminate called without an active exception",
    "terminate called recursively",
    "FATAL: exception not rethrown",
)
_DUMP = "Fatal Python error: Aborted"  # the first line of what PYTHONFAULTHANDLER prints then; it goes on to the end
_THROWN = re.compile(r"^\s*what\(\):\s*(.+)")


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An exception, as its traceback shows it."""

    line: str
    """The line that names it."""
    message: str
    """That line and those that continue it."""
    first: str
    """The message of the exception that the others in its chain followed; its own if it is the only one."""
    text: str
    """All that one line can say: the message, what it was caused by, the true error of a worker or a group."""
    uncaught: bool
    """Whether it seems to have ended the program: nothing was printed after it, or torch marked it."""
    marked: bool = False
    """Whether torch marked it, as it does only with exceptions that end the program."""


def raised(lines: Sequence[str]) -> Raised | None:
    """Return the exception of the last traceback in `lines`, None if there is none."""
    bare = [_COLOUR.sub("", _RANK_PREFIX.sub("", line)) for line in lines]
    starts = [number for number, line in enumerate(bare) if _START.match(line)]
    if not starts:
        return _of_the_script_itself(bare)
    chain, joint = _chain(bare, starts)
    last = _exception(bare[chain[-1] :])
    if last is None:
        return None
    line, message, text = last
    marked = bool(_RANK_PREFIX.match(lines[chain[-1]]))
    first = message
    if len(chain) > 1 and (before := _exception(bare[chain[0] : chain[1]])):
        first = before[1]
        if before[2] != text:
            text = f"{text} ({joint}: {before[2]})"
    process = _OF_PROCESS.match(_before(bare, chain[-1]))
    if process:
        text = f"{text} (in process {process[1]}, which the script started)"
    end = next((each for each in reversed(bare) if each.strip()), "")
    return Raised(
        line=line, message=message, first=first, text=_short(text), uncaught=marked or end == line, marked=marked
    )


def exception_line(lines: Sequence[str]) -> str | None:
    """Return the line that names the exception, after the last traceback in `lines`."""
    found = raised(lines)
    return found.line if found else None


def thrown(lines: Sequence[str]) -> str | None:
    """Return what a C++ exception said that ended the process (`what():`)."""
    found = [match[1] for line in lines if (match := _THROWN.match(_RANK_PREFIX.sub("", line)))]
    return found[-1] if found else None


def last_words(lines: Sequence[str]) -> str:
    """Return the last line that says something: no frame of a box, no advice on how to see more."""
    bare = (_COLOUR.sub("", line).strip("│╭╮╰╯─| \t\r") for line in reversed(lines))
    return next((line for line in bare if line and not line.startswith("Set the environment variable HYDRA")), "")


def has_late_abort(lines: Sequence[str]) -> bool:
    """Return whether the lines have the words of an abort as it happens to Gloo's threads while Python ends."""
    return any(line.strip() in _LATE_ABORT for line in lines)


def before_late_abort(lines: Sequence[str]) -> tuple[str, ...] | None:
    """Return what was printed before such an abort if that ends with an uncaught exception; else None.

    If anything was printed after the exception, the program had handled it, and the abort is an event of its own.
    """
    dump = next((number for number, line in enumerate(lines) if line.startswith(_DUMP)), len(lines))
    before = list(lines[:dump])
    aborted = False
    while before and (not before[-1].strip() or before[-1].strip() in _LATE_ABORT):
        aborted |= bool(before.pop().strip())
    if not (aborted and before):
        return None
    uncaught = _RANK_PREFIX.match(before[-1]) or before[-1] == exception_line(before)
    return tuple(before) if uncaught else None


def _chain(lines: Sequence[str], starts: Sequence[int]) -> tuple[list[int], str]:
    """Return where the tracebacks of the last chain start, the first to be raised first, and how they are joined."""
    chain, joint = [starts[-1]], ""
    for start in reversed(starts[:-1]):
        words = _CHAINS.get(_before(lines, chain[0]).strip())
        if words is None:
            break
        chain.insert(0, start)
        joint = words
    return chain, joint


def _before(lines: Sequence[str], number: int) -> str:
    """Return the line before `number` that isn't empty."""
    return next((line for line in reversed(lines[:number]) if line.strip()), "")


def _exception(block: Sequence[str]) -> tuple[str, str, str] | None:
    """Return line, message and text of the exception whose traceback `block` starts with."""
    if block[0].startswith("  +"):
        return _group(block)
    body = list(takewhile(lambda line: line.strip() not in _CHAINS, block[1:]))
    after = [
        (number, line) for number, line in enumerate(body) if line and not line[0].isspace() and not _BOX.match(line)
    ]
    if not after:
        return None
    number, line = after[0]
    if not _CLASS_LIKE.match(line):
        number, line = next(((n, each) for n, each in after if _EXCEPTION.match(each)), (number, line))
    rest = list(takewhile(lambda each: not _AFTERWARDS.match(each), body[number + 1 :][:_MESSAGE_LINES]))
    original = next((n for n, each in enumerate(rest) if each.startswith(_ORIGINAL)), None)
    if original is not None and (inner := _exception(rest[original:])):
        where = _CAUGHT_IN.search(line)
        return line, inner[1], f"{inner[2]} (in {where[1]})" if where else inner[2]
    return line, "\n".join((line, *rest)).rstrip(), _one_line(line, rest, body[:number])


def _group(block: Sequence[str]) -> tuple[str, str, str] | None:
    """Return the same of a group of exceptions, whose first real one is its message."""
    barred = [match[1] for each in block[1:] if (match := _IN_GROUP.match(each))]
    named = [each for each in barred if "Traceback (most recent call last)" not in each]
    if not named:
        return None
    leaf = next((each for each in named[1:] if not _GROUP_LINE.search(each)), None)
    return named[0], leaf or named[0], f"{named[0]}: {leaf}" if leaf else named[0]


def _one_line(line: str, rest: Sequence[str], frames: Sequence[str]) -> str:
    """Return an exception's line, completed where it alone says too little."""
    following = [each.strip() for each in rest if each.strip()]
    detail = next((after for each, after in pairwise(following) if each == "Last error:"), None)
    if detail:  # of NCCL; its first line says only "unhandled system error"
        return f"{line.rstrip()} {detail}"
    if line.rstrip().endswith(":") and following:
        return f"{line.rstrip()} {following[0]}"
    places = [(match, number) for number, each in enumerate(frames) if (match := _FRAME.match(each))]
    if re.fullmatch(r"[\w.]+:?", line) and places:
        match, number = places[-1]
        source = frames[number + 1].strip() if number + 1 < len(frames) else ""
        return f"{line.rstrip(':')} ({match[1].rpartition('/')[2]}, line {match[2]}{f': {source}' if source else ''})"
    return line


def _of_the_script_itself(lines: Sequence[str]) -> Raised | None:
    line = next((each for each in reversed(lines) if each.strip()), "")
    if not _UNRAISED.match(line):
        return None
    places = [match for each in lines if (match := _FRAME.match(each))]
    text = f"{line} ({places[-1][1].rpartition('/')[2]}, line {places[-1][2]})" if places else line
    return Raised(line=line, message=line, first=line, text=_short(text), uncaught=True)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
