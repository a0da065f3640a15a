"""The supervisor with real processes: each agent is a rank's parent alone, which needs no torch and starts in 20 ms."""

import os
import shlex
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_plan import facts, made

from launcher import supervise
from launcher.errors import ExitCode
from launcher.job import JobFolder, create
from launcher.plan import Plan
from launcher.process import ProcessRuntime
from launcher.program import ROOT
from launcher.progress import Progress
from launcher.supervise import Outcome, Supervisor

FOREVER = "import time\nwhile True: time.sleep(0.05)"
STUBBORN = "import signal\nfor each in (2, 15): signal.signal(each, signal.SIG_IGN)\nprint('ready')\n" + FOREVER
PATIENT = "import signal, sys\nsignal.signal(2, lambda *_: sys.exit(130))\nprint('ready')\n" + FOREVER


class Notes:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[tuple[str, int, bytes]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def line(self, node: str, rank: int, text: bytes) -> None:
        self.lines.append((node, rank, text))

    def progress(self, progress: Progress) -> None:
        pass


def plan_of(*programs: str) -> Plan:
    """A plan in which node i runs programs[i] as its only rank."""
    base = made(facts(len(programs)))
    nodes = tuple(
        replace(
            node,
            argv=(sys.executable, "-IS", str(ROOT / "launcher" / "rank.py")),
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


def run(folder: Path, plan: Plan, *signals: int) -> tuple[Outcome, Notes, float]:
    """The outcome, what was shown, and the seconds; `signals` are sent once all ranks are ready, 0.3 s apart."""
    job, screen = JobFolder(path=folder / "job"), Notes()
    create(job, plan)

    def send() -> None:
        deadline = time.monotonic() + 20
        while len(screen.lines) < len(plan.nodes) and time.monotonic() < deadline:
            time.sleep(0.05)
        for signum in signals:
            os.kill(os.getpid(), signum)
            time.sleep(0.3)

    thread = threading.Thread(target=send)
    started = time.monotonic()
    supervisor = Supervisor(plan, job, ProcessRuntime(os.environ), screen)
    if signals:
        thread.start()
    outcome = supervisor.run()
    seconds = time.monotonic() - started
    if signals:
        thread.join()
    return outcome, screen, seconds


def test_all_well(tmp_path: Path) -> None:
    outcome, screen, _ = run(tmp_path, plan_of("print('one')", "print('two')"))
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("succeeded", 0, None)
    assert sorted(screen.lines) == [("node1", 0, b"one"), ("node2", 1, b"two")]
    assert (tmp_path / "job/logs/node2.log").read_text() == "[1] two\n"
    assert screen.notes == []


def test_the_first_failure_stops_all_even_who_ignores_it(tmp_path: Path) -> None:
    outcome, _, seconds = run(tmp_path, plan_of(STUBBORN, "raise ValueError('boom')"))
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.rank, outcome.failure.reason) == ("node2", 1, "ValueError: boom")
    assert seconds < 20, "2.6 s by design; the rest is a busy machine"


def test_an_agent_that_is_killed_is_a_lost_node(tmp_path: Path) -> None:
    suicide = "import os, time\ntime.sleep(0.3)\nos.kill(os.getppid(), 9)\n" + FOREVER
    outcome, _, _ = run(tmp_path, plan_of(FOREVER, suicide))
    assert outcome.exit_code == ExitCode.CLUSTER
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.rank, outcome.failure.signal) == ("node2", None, "SIGKILL")


def test_a_node_that_cannot_start_leaves_none_running(tmp_path: Path) -> None:
    plan = plan_of(FOREVER, FOREVER)
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], argv=("/no/such/torchrun",))))
    outcome, _, seconds = run(tmp_path, plan)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.NOT_STARTED)
    assert outcome.failure is not None and outcome.failure.node == "node2"
    assert seconds < 10


def test_who_is_waited_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_WAIT_S", 0.5)
    plan = plan_of("import time; time.sleep(1.5)", "")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], argv=("sleep", "1.5"))))
    _, screen, _ = run(tmp_path, plan)
    assert screen.notes[0].startswith("waiting for node2 to join (")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_one_signal_is_handed_to_the_programs(tmp_path: Path, signum: int, code: int) -> None:
    program = PATIENT.replace("signal.signal(2,", "signal.signal(15, lambda *_: sys.exit(0)); signal.signal(2,")
    outcome, screen, _ = run(tmp_path, plan_of(program, program), signum)
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", code, None)
    assert len(screen.notes) == 1 and "asked the script to stop" in screen.notes[0]


def test_a_hangup_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        outcome, screen, _ = run(tmp_path, plan_of("import time\nprint('ready')\ntime.sleep(1)"), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (outcome.state, screen.notes) == ("succeeded", [])


def test_three_signals_end_who_ignores_two(tmp_path: Path) -> None:
    outcome, screen, seconds = run(tmp_path, plan_of(STUBBORN, STUBBORN), *[signal.SIGINT] * 3)
    assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
    assert screen.notes[-1] == "killing"
    assert seconds < 10


def test_the_last_process_is_found_by_its_label(tmp_path: Path) -> None:
    leaves = "import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint(p.pid)"
    _, screen, _ = run(tmp_path, plan_of(leaves))
    assert screen.notes == ["1 process(es) that the job had left behind were ended"]
    status = Path(f"/proc/{int(screen.lines[0][2])}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(), "gone, but for its parent's look"
