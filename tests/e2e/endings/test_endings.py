"""Planted endings on nodes that are processes: no wrong state, and never an innocent one named.

A few belong to `make test`. All of them, and their score, are the drill, which takes some minutes:
`.venv/bin/python -m pytest -m drill -rP tests/e2e/endings`.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.endings.died import DIED
from tests.e2e.endings.ending import Ending
from tests.e2e.endings.raised import RAISED
from tests.e2e.endings.scene import Scene
from tests.e2e.endings.stopped import STOPPED
from tests.e2e.endings.verdict import Verdict, good_enough, line, score, verdict
from tests.e2e.endings.waited import WAITED
from tests.e2e.jobs import Job, Trainer, processes_with

pytestmark = pytest.mark.timeout(1800)

ENDINGS = {ending.name: ending for ending in (*RAISED, *DIED, *WAITED, *STOPPED)}

_AT_ONCE = 3
"""Jobs at a time: most of each is waiting."""
_LABELLED = re.compile(r"^node\d+:\d+ *\| .*$", re.MULTILINE)
"""What a rank printed."""

Judge = Callable[[str], Verdict]


@pytest.fixture(scope="module")
def judged(request: pytest.FixtureRequest, train: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Run every ending that was chosen, several at a time; hand out the verdicts, each as soon as it is there."""
    names = {item.name for item in request.session.items}
    everything = test_nearly_all_are_named.__name__ in names
    chosen = [ending for ending in ENDINGS.values() if everything or f"{_ONE.__name__}[{ending.name}]" in names]
    folder = tmp_path_factory.mktemp("endings")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = {ending.name: pool.submit(run, ending, train, folder) for ending in chosen}
        yield lambda name: running[name].result()


def run(ending: Ending, train: Trainer, folder: Path) -> Verdict:
    """Plant an ending, and judge what the launcher says of it."""
    script = folder / f"{ending.name}.py"
    script.write_text(ending.program)
    more = {} if ending.ranks is None else {"RANKS": ending.ranks}
    name, process = train.start(NODES=ending.nodes, SCRIPT=script, ARGS=ending.arguments, **more)
    try:
        if ending.act:
            ending.act(Scene(job=Job(name=name, output=""), process=process))
        output = process.communicate(timeout=600)[0]
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        raise
    assert processes_with(f"RINGMASTER_JOB={name}") == [], output
    return verdict(ending.expected, Job(name=name, output=output).summary, _LABELLED.sub("", output))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if each.quick else pytest.mark.drill) for name, each in ENDINGS.items()]
)
def test_an_ending_is_told_as_it_was(judged: Judge, name: str) -> None:
    found = judged(name)
    print(line(name, found))
    assert found.complaints == ()


_ONE = test_an_ending_is_told_as_it_was


@pytest.mark.drill
def test_nearly_all_are_named(judged: Judge) -> None:
    found = {name: judged(name) for name in ENDINGS}
    for name, each in found.items():
        print(line(name, each))
    names = [each.name for each in found.values()]
    print(score(names))
    assert good_enough(names), score(names)
    assert [each for each in found.values() if each.complaints] == []
