"""The supervisor: with real processes, each agent a rank's parent alone, which needs no torch and starts in 20 ms;
and with a runtime that outlives it, which is a fake.
"""

import json
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode
from launcher.base.paths import ON_NODE
from launcher.follow import follower
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome
from launcher.follow.progress import Progress
from launcher.follow.runtime import NotStartedError
from launcher.job.folder import JobFolder, create
from launcher.job.plan import NodePlan, Plan
from launcher.local.runtime import ProcessRuntime
from launcher.on_node.rank import EVENT, FRAME, LINE
from tests.support.plans import facts, made

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
    """What was noted but for who is waited for."""
    return sum(not note.startswith("waiting for") for note in screen.notes)


def run(folder: Path, plan: Plan, *signals: int) -> tuple[Outcome, Notes, float]:
    """The outcome, what was shown, and the seconds.

    `signals` are sent once all ranks are ready, each once the one before was answered: of two at once one may be lost,
    and one that comes after the end would end the tests.
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
    supervisor = Follower(plan, job, ProcessRuntime(os.environ), screen)
    if signals:
        thread.start()
    try:
        outcome = supervisor.run()
    finally:
        over.set()
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
    monkeypatch.setattr(follower, "_WAIT_S", 0.5)
    named = tmp_path / "named"

    def note(self: Notes, text: str) -> None:
        self.notes.append(text)
        if text.startswith("waiting for node2 to join ("):
            named.touch()

    monkeypatch.setattr(Notes, "note", note)
    # Both run until node2 alone is named: at first node1 may not have reported either. The limit is for who fails.
    plan = plan_of(f"import os, time\nwhile not os.path.exists({str(named)!r}): time.sleep(0.05)", "")
    waits = ("timeout", "60", "sh", "-c", f"until [ -e {shlex.quote(str(named))} ]; do sleep 0.05; done")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], argv=waits)))
    outcome, screen, _ = run(tmp_path, plan)
    assert named.exists(), screen.notes
    assert outcome.state == "succeeded"


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


def test_three_signals_end_who_ignores_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TERM_S", 60.0)  # it is the third that ends them, and no patience that is over
    outcome, screen, seconds = run(tmp_path, plan_of(STUBBORN, STUBBORN), *[signal.SIGINT] * 3)
    assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
    assert answers(screen) >= 3 and "killing" in screen.notes
    assert seconds < 30


def test_the_last_process_is_found_by_its_label(tmp_path: Path) -> None:
    leaves = "import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint(p.pid)"
    _, screen, _ = run(tmp_path, plan_of(leaves))
    assert screen.notes == ["1 process(es) that the job had left behind were ended"]
    status = Path(f"/proc/{int(screen.lines[0][2])}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(), "gone, but for its parent's look"


class FakeNode:
    """A node whose rank says what the test has it say, through a real pipe."""

    def __init__(self, plan: NodePlan, runtime: "FakeRuntime") -> None:
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.lost: str | None = None
        self.code: int | None = None
        self.memory: str | None = None
        self.told: list[str] = []
        self.asked: list[tuple[int, int | None]] = []
        self._runtime = runtime
        self._output, self._writing = os.pipe()

    def started(self) -> None:
        self._event(event="started", pid=7)

    def exited(self, code: int, killed_by: str | None = None, **more: Any) -> None:
        self._event(event="exited", exit_code=code, signal=killed_by, error_at=None, **more)

    def say(self, text: str) -> None:
        self._write(LINE, text)

    def end(self, code: int) -> None:
        if self.code is None:
            self.code = code
            os.close(self._writing)

    def _event(self, **fields: Any) -> None:
        self._write(EVENT, json.dumps(fields))

    def _write(self, kind: bytes, text: str) -> None:
        os.write(self._writing, FRAME + str(self.plan.first_rank).encode() + kind + text.encode() + b"\n")

    def fileno(self) -> int:
        return self._output

    def read(self) -> bytes:
        return os.read(self._output, 1 << 16)

    def poll(self) -> int | None:
        return self.code

    def joined(self) -> bool:
        return bool(self.ranks)

    def out_of_memory(self) -> str | None:
        return self.memory

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        self.asked.append((signum, only))
        self.told += [signal.Signals(signum).name for rank in self.ranks if only in (None, rank)]
        if self._runtime.obeys and self.ranks and self.code is None:
            self.exited(128 + signum)
            self.end(0)

    def terminate(self) -> None:
        self.told.append("terminate")
        if self._runtime.obeys:
            self.end(-signal.SIGTERM)

    def kill(self) -> None:
        self.told.append("kill")
        self.end(-signal.SIGKILL)


class FakeRuntime:
    """Containers, as far as the supervisor sees them."""

    def __init__(self, *, survives: bool = True, obeys: bool = True) -> None:
        self.survives = survives
        self.obeys = obeys
        """Whether ranks and agents end when they are asked to."""
        self.nodes: list[FakeNode] = []
        self.away: list[str] = []
        self.done: list[str] = []
        self.refuses: Exception | None = None
        self.watched: Callable[[], None] = lambda: None

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        if self.refuses:
            raise self.refuses
        self.nodes = [FakeNode(node, self) for node in nodes]
        for node in self.nodes:
            node.started()
        return self.nodes

    def watch(self) -> list[str]:
        self.watched()
        return list(self.away)

    def release(self) -> None:
        self.done.append("release")

    def sweep(self) -> int:
        self.done.append("sweep")
        return 0


def supervise_with(
    folder: Path, runtime: FakeRuntime, then: Callable[[], None] = lambda: None, *, script: bool = True, **how: Any
) -> tuple[Outcome, Notes]:
    """The outcome and what was shown; `then` happens once all ranks have started and were heard."""
    plan = replace(made(facts(2)), script="/their/script.py" if script else None)
    job, screen, done = JobFolder(path=folder / "job"), Notes(), []
    create(job, plan)

    def watched() -> None:
        if not done and runtime.nodes and all(node.ranks for node in runtime.nodes):
            done.append(True)
            then()

    runtime.watched = watched
    return Follower(plan, job, runtime, screen, **how).run(), screen


def send(*signals: int) -> Callable[[], None]:
    def now() -> None:
        for signum in signals:
            os.kill(os.getpid(), signum)

    return now


class TestASurvivingRuntime:
    def test_a_closed_terminal_leaves_it_running(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = supervise_with(tmp_path, runtime, send(signal.SIGHUP))
        assert (outcome.state, outcome.exit_code) == ("detached", ExitCode.TERMINATED)
        assert runtime.done == ["release"]
        assert [node.told for node in runtime.nodes] == [[], []]
        assert screen.notes == []

    def test_ctrl_c_stops_it(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = supervise_with(tmp_path, runtime, send(signal.SIGINT), script=False)
        assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", ExitCode.INTERRUPTED, None)
        assert [node.told[0] for node in runtime.nodes] == ["SIGINT", "SIGINT"]
        assert runtime.done == ["sweep"]
        assert "with a checkpoint" in screen.notes[0]

    @pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
    def test_whoever_only_follows_never_ends_it(self, tmp_path: Path, signum: int, code: int) -> None:
        runtime = FakeRuntime()
        outcome, _ = supervise_with(tmp_path, runtime, send(signum), only_follows=True)
        assert (outcome.state, outcome.exit_code) == ("detached", code)
        assert runtime.done == ["release"]
        assert [node.told for node in runtime.nodes] == [[], []]

    def test_a_mistake_of_ours_leaves_it_running(self, tmp_path: Path) -> None:
        def mistake() -> None:
            raise AssertionError("ours")

        runtime = FakeRuntime()
        with pytest.raises(AssertionError, match="ours"):
            supervise_with(tmp_path, runtime, mistake)
        assert runtime.done == ["release"]
        assert [node.told for node in runtime.nodes] == [[], []]

    def test_nodes_out_of_reach_are_named_once_and_so_is_their_return(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        looks = iter([["node2"], ["node2"], []])

        def watch() -> list[str]:
            try:
                return next(looks)
            except StopIteration:
                for node in runtime.nodes:
                    node.exited(0) if node.code is None else None
                    node.end(0)
                return []

        runtime.watch = watch  # type: ignore[method-assign]
        job, screen = JobFolder(path=tmp_path / "job"), Notes()
        plan = made(facts(2))
        create(job, plan)
        outcome = Follower(plan, job, runtime, screen).run()
        assert outcome.state == "succeeded"
        assert screen.notes == [
            "node2 doesn't answer; trying again (the job goes on meanwhile)",
            "node2 answers again",
        ]


class TestARuntimeThatEndsWithUs:
    def test_a_closed_terminal_stops_it(self, tmp_path: Path) -> None:
        runtime = FakeRuntime(survives=False)
        outcome, _ = supervise_with(tmp_path, runtime, send(signal.SIGHUP))
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert runtime.done == ["sweep"]
        assert [node.told[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"]

    def test_a_mistake_of_ours_ends_it(self, tmp_path: Path) -> None:
        def mistake() -> None:
            raise AssertionError("ours")

        runtime = FakeRuntime(survives=False)
        with pytest.raises(AssertionError, match="ours"):
            supervise_with(tmp_path, runtime, mistake)
        assert runtime.done == ["sweep"]
        assert ["kill" in node.told for node in runtime.nodes] == [True, True]


class TestAskedFromElsewhere:
    """`make stop`: the request is older than the following."""

    def test_the_ranks_are_asked_and_given_time(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = supervise_with(tmp_path, runtime, asked=(signal.SIGTERM,), script=False)
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert [node.told[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"]
        assert "with a checkpoint" in screen.notes[0]

    def test_also_where_it_takes_a_while_until_they_are_heard_of(self, tmp_path: Path) -> None:
        runtime = FakeRuntime(obeys=False)
        heard: list[float] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            return runtime.nodes

        def watch() -> list[str]:
            heard.append(time.monotonic())
            for node in runtime.nodes if len(heard) == 3 else ():  # the log comes over a slow connection
                runtime.obeys = True
                node.started()
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        plan = made(facts(2))
        job, screen = JobFolder(path=tmp_path / "job"), Notes()
        create(job, plan)
        outcome = Follower(plan, job, runtime, screen, asked=(signal.SIGTERM,)).run()
        assert outcome.state == "stopped"
        assert [node.told[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"], "not its agent, and not SIGKILL"

    def test_where_nobody_has_reported_agents_and_ranks_are_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a job that has printed very much, what its ranks said of themselves at their start is gone."""
        monkeypatch.setattr(follower, "_WAIT_S", 0.2)
        runtime = FakeRuntime()
        plan = made(facts(2))
        runtime.start = lambda nodes, port: runtime.nodes  # type: ignore[method-assign, assignment, return-value]
        runtime.nodes = [FakeNode(node, runtime) for node in plan.nodes]
        job, screen = JobFolder(path=tmp_path / "job"), Notes()
        create(job, plan)
        outcome = Follower(plan, job, runtime, screen, asked=(signal.SIGTERM,)).run()
        assert outcome.state == "stopped"
        assert "asked the script to stop" not in screen.notes[0] and "with a checkpoint" in screen.notes[0]
        assert [node.told[0] for node in runtime.nodes] == ["terminate", "terminate"]
        assert [node.asked for node in runtime.nodes] == [[(signal.SIGTERM, None)]] * 2, "the runtime finds them"

    @pytest.mark.parametrize("heard", [False, True])
    def test_a_closed_terminal_changes_nothing(self, tmp_path: Path, heard: bool) -> None:
        """Also where nobody was asked yet, for nobody was heard of: it is no second request."""
        runtime = FakeRuntime(obeys=False)
        looks: list[int] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            for node in runtime.nodes if heard else ():
                node.started()
            return runtime.nodes

        def watch() -> list[str]:
            looks.append(len(looks))
            if len(looks) == 2:
                os.kill(os.getpid(), signal.SIGHUP)
            if len(looks) == 4:
                runtime.obeys = True
                for node in runtime.nodes:
                    if heard:
                        node.exited(143, "SIGTERM")
                        node.end(0)
                    else:
                        node.started()
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        plan = made(facts(2))
        job, screen = JobFolder(path=tmp_path / "job"), Notes()
        create(job, plan)
        outcome = Follower(plan, job, runtime, screen, asked=(signal.SIGTERM,)).run()
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert runtime.done == ["sweep"], "nothing is left to itself"
        assert [node.told for node in runtime.nodes] == [["SIGTERM", "kill"]] * 2, "asked once, and killed at the end"

    @pytest.mark.parametrize("wait_s", [0.2, 20.0])
    def test_a_rank_that_starts_late_is_asked_and_no_other_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float
    ) -> None:
        """Late: after the others were asked, or before."""
        monkeypatch.setattr(follower, "_WAIT_S", wait_s)
        runtime = FakeRuntime(obeys=False)
        looks: list[int] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            runtime.nodes[0].started()
            return runtime.nodes

        def watch() -> list[str]:
            looks.append(len(looks))
            if len(looks) == 2:
                runtime.nodes[1].started()
            if len(looks) == 4:
                for node in runtime.nodes:
                    node.exited(143, "SIGTERM")
                    node.end(0)
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        plan = made(facts(2))
        job, screen = JobFolder(path=tmp_path / "job"), Notes()
        create(job, plan)
        Follower(plan, job, runtime, screen, asked=(signal.SIGTERM,)).run()
        assert [node.told for node in runtime.nodes] == [["SIGTERM", "kill"]] * 2


class TestOutOfReach:
    """Nodes that hear nothing, and are not seen to end."""

    @pytest.fixture
    def deaf(self, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
        monkeypatch.setattr(follower, "_GIVE_UP_S", 0.2)
        monkeypatch.setattr(follower, "_TERM_S", 0.1)
        monkeypatch.setattr(FakeNode, "kill", lambda node: node.told.append("kill"))
        return FakeRuntime(obeys=False)

    def test_who_has_killed_all_is_not_kept(self, tmp_path: Path, deaf: FakeRuntime) -> None:
        outcome, screen = supervise_with(tmp_path, deaf, send(*[signal.SIGINT] * 3))
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
        assert screen.notes[-1] == "node1, node2: not seen to end; make stop NAME=job tries again"
        assert deaf.done == ["sweep"]

    def test_nor_who_waits_for_a_failed_job(self, tmp_path: Path, deaf: FakeRuntime) -> None:
        def fail() -> None:
            deaf.nodes[1].exited(1)
            deaf.nodes[1].end(1)

        outcome, screen = supervise_with(tmp_path, deaf, fail)
        assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
        assert screen.notes[-1] == "node1: not seen to end; make stop NAME=job tries again"


def test_before_anything_has_started_ctrl_c_ends_the_agents(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    plan = made(facts(2))
    runtime.start = lambda nodes, port: runtime.nodes  # type: ignore[method-assign, assignment, return-value]
    runtime.nodes = [FakeNode(node, runtime) for node in plan.nodes]
    runtime.watched = send(signal.SIGINT)
    job, screen = JobFolder(path=tmp_path / "job"), Notes()
    create(job, plan)
    outcome = Follower(plan, job, runtime, screen).run()
    assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
    assert screen.notes[0] == "stopping: nothing had started yet"
    assert [node.told[0] for node in runtime.nodes] == ["terminate", "terminate"]


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_fails_to_start_does_not_make_it_a_job_that_ran(tmp_path: Path, signum: int) -> None:
    runtime = FakeRuntime()

    def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        os.kill(os.getpid(), signum)
        raise NotStartedError("node2", "job other has it")

    runtime.start = start  # type: ignore[method-assign]
    outcome, _ = supervise_with(tmp_path, runtime)
    assert (outcome.state, outcome.exit_code, outcome.started) == ("failed", ExitCode.NOT_STARTED, False)
    assert outcome.failure is not None and outcome.failure.node == "node2"


def test_a_log_that_can_not_be_opened_is_said_and_the_job_goes_on(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    opened = runtime.start

    def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        shutil.rmtree(tmp_path / "job/logs")
        return opened(nodes, port)

    def end() -> None:
        for node in runtime.nodes:
            node.say("words")
            node.exited(0)
            node.end(0)

    runtime.start = start  # type: ignore[method-assign]
    outcome, screen = supervise_with(tmp_path, runtime, end)
    assert outcome.state == "succeeded"
    assert sorted(screen.lines) == [("node1", 0, b"words"), ("node2", 1, b"words")]
    assert len(screen.notes) == 2
    assert all("is not complete: No such file or directory; the job goes on" in note for note in screen.notes)


def test_a_lost_node_ends_the_job_and_is_named(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def lose() -> None:
        runtime.nodes[1].lost = "no answer for 8 s, and node1 can't reach it either"

    outcome, _ = supervise_with(tmp_path, runtime, lose)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.CLUSTER)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.exit_code, outcome.failure.signal) == ("node2", None, None)
    assert outcome.failure.reason.startswith("the node is lost: no answer for 8 s")
    assert "terminate" in runtime.nodes[0].told


def test_gpus_that_are_not_there_are_a_refusal(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def refuse() -> None:
        runtime.nodes[1].say("torch sees 0 of 2 GPUs")
        runtime.nodes[1].exited(3, refused=True)
        runtime.nodes[1].end(1)

    outcome, _ = supervise_with(tmp_path, runtime, refuse)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.NOT_STARTED)
    assert outcome.failure is not None and "torch sees 0 of 2 GPUs" in outcome.failure.reason


def test_a_users_own_3_is_no_refusal(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def fail() -> None:
        runtime.nodes[1].exited(3)
        runtime.nodes[1].end(1)

    assert supervise_with(tmp_path, runtime, fail)[0].exit_code == ExitCode.FAILED


def test_memory_that_ran_out_is_named(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def kill() -> None:
        runtime.nodes[1].memory = "node2 (limit 512 MiB)"
        runtime.nodes[1].exited(137, "SIGKILL")
        runtime.nodes[1].end(1)

    outcome, _ = supervise_with(tmp_path, runtime, kill)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.reason) == (1, "out of memory on node2 (limit 512 MiB)")


def test_memory_that_ran_out_is_the_programs_doing_also_where_the_agent_was_chosen(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def kill() -> None:
        runtime.nodes[1].memory = "node2 (limit 512 MiB)"
        runtime.nodes[1].end(-signal.SIGKILL)

    outcome, _ = supervise_with(tmp_path, runtime, kill)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.reason) == (None, "out of memory on node2 (limit 512 MiB)")


def test_nobody_waits_for_a_node_that_is_slow_to_say_why(tmp_path: Path) -> None:
    """It has run out of memory: it may take minutes to answer."""
    runtime = FakeRuntime()
    stopped = threading.Event()

    def kill() -> None:
        one, other = runtime.nodes
        terminate = other.terminate

        def noted() -> None:
            terminate()
            stopped.set()

        def out_of_memory() -> str | None:
            return "node1" if stopped.wait(20) else "nobody was stopped meanwhile"

        one.out_of_memory, other.terminate = out_of_memory, noted  # type: ignore[method-assign]
        one.exited(137, "SIGKILL")
        one.end(1)

    outcome, _ = supervise_with(tmp_path, runtime, kill)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.reason) == ("node1", "out of memory on node1")


def await_sweep(runtime: FakeRuntime) -> None:
    """Wait until all has stopped."""
    deadline = time.monotonic() + 20
    while "sweep" not in runtime.done and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_node_is_waited_for_once_all_has_stopped(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def out_of_memory() -> str:
        await_sweep(runtime)
        time.sleep(1.5)
        return "node1 (limit 1 MiB)"

    def kill() -> None:
        runtime.nodes[0].out_of_memory = out_of_memory  # type: ignore[method-assign]
        runtime.nodes[0].exited(137, "SIGKILL")
        runtime.nodes[0].end(1)

    outcome, _ = supervise_with(tmp_path, runtime, kill)
    assert outcome.failure is not None and outcome.failure.reason == "out of memory on node1 (limit 1 MiB)"


@pytest.mark.parametrize("only_follows", [False, True])
def test_whoever_does_not_want_to_wait_for_it_gets_the_same_end(tmp_path: Path, only_follows: bool) -> None:
    runtime = FakeRuntime()
    over = threading.Event()

    def out_of_memory() -> None:
        await_sweep(runtime)
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)

    def kill() -> None:
        for node in runtime.nodes:
            node.out_of_memory = out_of_memory  # type: ignore[method-assign]
        runtime.nodes[0].exited(137, "SIGKILL")
        runtime.nodes[0].end(1)

    began = time.monotonic()
    outcome, _ = supervise_with(tmp_path, runtime, kill, only_follows=only_follows)
    over.set()
    assert time.monotonic() - began < follower._MEMORY_S
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
    assert outcome.failure is not None and outcome.failure.reason == "killed by SIGKILL"


def test_what_we_killed_ourselves_did_not_run_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_TERM_S", 0.1)
    runtime = FakeRuntime(obeys=False)

    def fail() -> None:
        for node in runtime.nodes:
            node.memory = "node1 (limit 1 MiB)"
        runtime.nodes[1].say("Traceback (most recent call last):")
        runtime.nodes[1].say("ValueError: boom")
        runtime.nodes[1].exited(1)
        runtime.nodes[1].end(1)

    outcome, _ = supervise_with(tmp_path, runtime, fail)
    assert outcome.failure is not None and outcome.failure.reason == "ValueError: boom"
    assert "kill" in runtime.nodes[0].told


def test_a_node_that_refuses_leaves_a_job_that_never_ran(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.refuses = NotStartedError("node2", "job other has it")
    outcome, _ = supervise_with(tmp_path, runtime)
    assert (outcome.state, outcome.exit_code, outcome.started) == ("failed", ExitCode.NOT_STARTED, False)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.reason) == ("node2", "node2: job other has it")
