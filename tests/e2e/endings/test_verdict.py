"""What counts as a right answer: an innocent one is never it, and a suspect only where nobody can know more."""

from typing import Any

import pytest

from tests.e2e.endings.ending import Expected
from tests.e2e.endings.verdict import Name, good_enough, score, verdict

_NODE2 = Expected(culprits=(("node2", 1),), reason=("boom",), never=("+--",))
_HIDDEN = Expected(culprits=(("node2", 1),), provable=False, reason=("boom",))
_NOBODY = Expected()
_STOPPED = Expected(state="stopped", code=143, said=r"node2\b.*\btold")


def named(node: str | None, rank: int | None, *, suspect: bool = False, reason: str = "boom") -> dict[str, Any]:
    return {"node": node, "rank": rank, "suspect": suspect, "reason": reason}


def failed(failure: dict[str, Any] | None, code: int = 1, state: str = "failed") -> dict[str, Any]:
    return {"state": state, "exit_code": code, "failure": failure}


@pytest.mark.parametrize(
    ("expected", "summary", "name"),
    [
        (_NODE2, failed(named("node2", 1)), Name.RIGHT),
        (_NODE2, failed(named("node2", 1, suspect=True)), Name.SUSPECT),
        (_HIDDEN, failed(named("node2", 1, suspect=True, reason="ended before")), Name.RIGHT),
        (_NODE2, failed(named(None, None), code=4), Name.UNKNOWN),
        (_NODE2, failed(named("node2", None)), Name.UNKNOWN),
        (_NOBODY, failed(named(None, None), code=4), Name.RIGHT),
    ],
)
def test_what_is_no_wrong_word(expected: Expected, summary: dict[str, Any], name: Name) -> None:
    found = verdict(expected, summary, "")
    assert (found.name, found.complaints) == (name, ())


@pytest.mark.parametrize(
    ("expected", "summary"),
    [
        (_NODE2, failed(named("node1", 0))),
        (_HIDDEN, failed(named("node1", 0, suspect=True))),
        (_NODE2, failed(named("node2", 3))),
        (_NODE2, failed(None)),
        (_NODE2, failed(named("node2", 1), code=4)),
        (_NODE2, failed(None, code=0, state="succeeded")),
        (_NODE2, failed(None, code=130, state="stopped")),
        (_NOBODY, failed(named("node1", 0, suspect=True))),
        (_NOBODY, failed(None, code=0, state="succeeded")),
        (_STOPPED, failed(named("node2", 1))),
        (_STOPPED, failed(named("node2", 1), code=143, state="stopped")),
    ],
)
def test_what_is_wrong(expected: Expected, summary: dict[str, Any]) -> None:
    found = verdict(expected, summary, "ringmaster: node2 was told to go")
    assert found.name is Name.WRONG and found.complaints


@pytest.mark.parametrize("reason", ["bad", "+-- boom"])
def test_a_wrong_reason_is_no_wrong_name_and_yet_a_complaint(reason: str) -> None:
    found = verdict(_NODE2, failed(named("node2", 1, reason=reason)), "")
    assert found.name is Name.RIGHT and found.complaints


def test_what_must_be_said_is_missed() -> None:
    stopped = failed(None, code=143, state="stopped")
    assert verdict(_STOPPED, stopped, "ringmaster: node2 was told to go").complaints == ()
    assert verdict(_STOPPED, stopped, "node2\nringmaster: somebody was told to go").complaints


def test_the_score() -> None:
    names = [Name.RIGHT] * 19 + [Name.SUSPECT]
    assert score(names) == "20 planted endings: 19 right, 1 suspect, 0 unknown, 0 wrong"
    assert good_enough(names)
    assert not good_enough([*names, Name.UNKNOWN]) and not good_enough([*names, *[Name.RIGHT] * 99, Name.WRONG])
