"""Follow a job in a test, with real processes or with a fake runtime."""

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.base.paths import ON_NODE
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome
from launcher.follow.progress import Progress
from launcher.job.folder import JobFolder, create
from launcher.job.plan import Plan
from launcher.local.runtime import ProcessRuntime
from tests.support.fake_runtime import FakeRuntime
from tests.support.plans import facts, plan_for

FOREVER = "import time\nwhile True: time.sleep(0.05)"
STUBBORN = "import signal\nfor each in (2, 15): signal.signal(each, signal.SIG_IGN)\nprint('ready')\n" + FOREVER
PATIENT = "import signal, sys\nsignal.signal(2, lambda *_: sys.exit(130))\nprint('ready')\n" + FOREVER


class Notes:
    """A screen that remembers."""

    def __init__(self, notes: list[str] | None = None) -> None:
        self.notes: list[str] = [] if notes is None else notes
        self.lines: list[tuple[str, int, bytes]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def output(self, node: str, rank: int, lines: Sequence[bytes]) -> None:
        self.lines += [(node, rank, line) for line in lines]

    def progress(self, progress: Progress) -> None:
        pass


def plan_of(*programs: str) -> Plan:
    """Return a plan in which node i runs programs[i] as its only rank."""
    base = plan_for(facts(len(programs)))
    nodes = tuple(
        replace(
            node,
            argv=(sys.executable, "-IS", str(ON_NODE / "rank.py")),
            working_folder="/",
            environment={
                "RANK": str(node.node_rank),
                "LOCAL_RANK": "0",
                "RINGMASTER_PROGRAM": shlex.join([sys.executable, "-u", "-c", program]),
            },
        )
        for node, program in zip(base.nodes, programs, strict=True)
    )
    return replace(base, nodes=nodes, script="/their/script.py")


def answers(screen: Notes) -> int:
    """Return how many notes there are, without those on nodes that are waited for."""
    return sum(not note.startswith("waiting for") for note in screen.notes)


def run(folder: Path, plan: Plan, *signals: int) -> tuple[Outcome, Notes, float]:
    """Follow a job of real processes; return the outcome, what was shown, and how many seconds it took.

    Args:
        signals: sent once all ranks are ready, each after the one before was answered. If two came at once, one might
            be lost; a signal after the end would end the tests.
    """
    job, screen, over = JobFolder(path=folder / "job"), Notes(), threading.Event()
    create(job, plan)

    def send() -> None:
        deadline = time.monotonic() + 60
        while len(screen.lines) < len(plan.nodes) and time.monotonic() < deadline and not over.is_set():
            over.wait(0.05)
        for sent, signum in enumerate(signals):
            while answers(screen) < sent and time.monotonic() < deadline and not over.is_set():
                over.wait(0.01)
            if over.is_set():
                return
            os.kill(os.getpid(), signum)

    thread = threading.Thread(target=send)
    started = time.monotonic()
    follower = Follower(plan, job, ProcessRuntime(os.environ), screen)
    if signals:
        thread.start()
    try:
        outcome = follower.run()
    finally:
        over.set()
    seconds = time.monotonic() - started
    if signals:
        thread.join()
    return outcome, screen, seconds


def follow(
    folder: Path, plan: Plan, runtime: FakeRuntime, screen: Notes | None = None, **how: Any
) -> tuple[Outcome, Notes]:
    """Follow `plan` to its end; return the outcome and what was shown."""
    job, screen = JobFolder(path=folder / "job"), screen or Notes()
    create(job, plan)
    return Follower(plan, job, runtime, screen, **how).run(), screen


def follow_with(
    folder: Path,
    runtime: FakeRuntime,
    then: Callable[[], None] = lambda: None,
    *,
    script: bool = True,
    each: Callable[[], None] = lambda: None,
    noted: list[str] | None = None,
    **how: Any,
) -> tuple[Outcome, Notes]:
    """Follow a job of two nodes; return the outcome and what was shown.

    Args:
        then: called once, when all ranks have reported their start.
        each: called again and again from then on.
        noted: where the notes go, for `each` to see.
    """
    plan = replace(plan_for(facts(2)), script="/their/script.py" if script else None)
    done: list[bool] = []

    def watched() -> None:
        if not done and runtime.nodes and all(node.ranks for node in runtime.nodes):
            done.append(True)
            then()
        elif done:
            each()

    runtime.watched = watched
    return follow(folder, plan, runtime, Notes(noted), **how)


def send(*signals: int) -> Callable[[], None]:
    """Return a function that sends `signals` to this process."""

    def now() -> None:
        for signum in signals:
            os.kill(os.getpid(), signum)

    return now
