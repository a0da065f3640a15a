"""Endings at random, as the real programs would report them: never the wrong state, never the wrong rank.

Each ending comes attached from the start or later, with one or two ranks a node, and clocks off by up to 60 s.
"""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.follow.outcome import Outcome
from tests.support.simulated_job import MODULES, TIMEOUT_S, SimClock, SimJob, SimRank

Truth = set[tuple[str, int | None]] | None
"""The nodes and ranks that are at fault; None: no one is."""

_HEAD = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>', "    step()")
_GONE = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [{address}]:10895",
    "RuntimeError: Connection reset by peer",
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error",
)
_WAITED = (
    "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 300000ms for recv "
    "operation to complete",
    "torch.distributed.DistStoreError: Socket Timeout",
)
_WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4) ran for 300010 "
    "milliseconds before timing out.",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "  what():  [Rank 1] NCCL watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4) ran for 300010 milliseconds before timing out.",
)
_RAISED = (
    ("ValueError: boom",),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",),
    ("my.project.Oops",),
    ("RuntimeError: Caught ValueError in DataLoader worker process 0.", "Original Traceback (most recent call last):",
     '  File "data.py", line 3', "ValueError: bad image"),
    ("OSError: [Errno 28] No space left on device",),
)  # fmt: skip
_GROUP = (
    "  + Exception Group Traceback (most recent call last):",
    '  |   File "train.py", line 1, in <module>',
    "  | ExceptionGroup: several (1 sub-exception)",
    "  +-+---------------- 1 ----------------",
    "    | ValueError: boom",
    "    +------------------------------------",
)


@dataclass
class Scene:
    """A job, its culprit, and when it happens."""

    job: SimJob
    culprit: SimRank
    at: float
    """Seconds after the start."""

    @property
    def others(self) -> list[SimRank]:
        return [rank for rank in self.job.ranks if rank is not self.culprit]

    @property
    def truth(self) -> Truth:
        return {(self.culprit.node.plan.name, self.culprit.rank)}

    def raises(self, rank: SimRank, at: float, lines: tuple[str, ...]) -> None:
        """Let a rank end of an exception."""
        job = self.job
        job.later(at, lambda: rank.end(1, None, lines, error_at=job.now))

    def others_lose_it(self, at: float, *, own_words: float = 0.2) -> None:
        """Let the connections of the others break."""
        rng, address = self.job.rng, self.culprit.node.plan.address
        for rank in self.others:
            if rng.random() < own_words:  # the script has words of its own for it, and takes a moment to find them
                self.raises(rank, at + rng.uniform(0.4, 0.8), (*_HEAD, "RuntimeError: the step failed"))
                continue
            line = rng.choice(_GONE).format(address=address)
            self.raises(rank, at + rng.uniform(0.03, 0.6), (*_HEAD, line))

    def others_time_out(self) -> None:
        """Let the others wait for it in vain."""
        rng, abort = self.job.rng, self.job.rng.random() < 0.3
        for rank in self.others:
            at = self.at + TIMEOUT_S + rng.uniform(0.0, 0.35)
            if abort:
                self.job.later(at, lambda rank=rank: rank.end(134, "SIGABRT", _WATCHDOG, error_at=self.job.now))
            else:
                self.raises(rank, at, (*_HEAD, rng.choice(_WAITED)))


def exception(scene: Scene) -> Truth:
    scene.raises(scene.culprit, scene.at, (*_HEAD, *scene.job.rng.choice(_RAISED)))
    scene.others_lose_it(scene.at)
    return scene.truth


def exception_group(scene: Scene) -> Truth:
    scene.raises(scene.culprit, scene.at, _GROUP)
    scene.others_lose_it(scene.at)
    return scene.truth


def late_exception(scene: Scene) -> Truth:
    """Its traceback is printed, its sockets are closed, and the rest of its end takes ten seconds."""
    job, culprit = scene.job, scene.culprit
    began: list[float] = []

    def begin() -> None:
        began.append(job.now)
        culprit.print(*(f"[rank1]: {line}" for line in (*_HEAD, "ValueError: boom")))

    end = culprit.end

    def end_with_its_error(code: int, signal: str | None = None, *_: object, **__: object) -> None:
        end(code, signal, (), began[0] if began else None)

    culprit.end = end_with_its_error  # type: ignore[method-assign, assignment]
    job.later(scene.at, begin)
    job.later(scene.at + 10, lambda: culprit.end(1))
    scene.others_lose_it(scene.at)
    return scene.truth


def killed(name: str) -> Callable[[Scene], Truth]:
    def ending(scene: Scene) -> Truth:
        code = 128 + signal.Signals[name]
        scene.job.later(scene.at, lambda: scene.culprit.end(code, name))
        scene.others_lose_it(scene.at)
        return scene.truth

    return ending


def out_of_memory(scene: Scene) -> Truth:
    scene.culprit.node.memory = "node (limit 512 MiB)"
    return killed("SIGKILL")(scene)


def parent_killed(scene: Scene) -> Truth:
    """The rank's parent is killed too, and says nothing."""
    scene.job.later(scene.at, scene.culprit.vanish)
    scene.others_lose_it(scene.at)
    return scene.truth


def exits(scene: Scene) -> Truth:
    """Ends with a code of its own."""
    scene.job.later(scene.at, lambda: scene.culprit.end(7, None, ("no data",)))
    scene.others_lose_it(scene.at)
    return scene.truth


def early_leaver(scene: Scene) -> Truth:
    scene.job.later(scene.at, lambda: scene.culprit.end(0))
    if scene.job.rng.random() < 0.5:
        scene.others_lose_it(scene.at + 0.3, own_words=0.0)
    else:
        scene.others_time_out()
    return scene.truth


def frozen(scene: Scene) -> Truth:
    def freeze() -> None:
        scene.culprit.frozen = True

    scene.job.later(scene.at, freeze)
    scene.others_time_out()
    return scene.truth


def busy(scene: Scene) -> Truth:
    """Computes for ever, or never joins the others; it ends when it is told to."""
    scene.culprit.reacts = "dies"
    scene.others_time_out()
    return scene.truth


def deadlock(scene: Scene) -> Truth:
    scene.others_time_out()
    scene.raises(scene.culprit, scene.at + TIMEOUT_S + scene.job.rng.uniform(0, 0.3), (*_HEAD, _WAITED[0]))
    return None


def two_at_once(scene: Scene) -> Truth:
    second = scene.job.rng.choice(scene.others)
    scene.raises(scene.culprit, scene.at, (*_HEAD, "ValueError: boom"))
    scene.raises(second, scene.at + scene.job.rng.uniform(0.0, 0.02), (*_HEAD, "KeyError: 'x'"))
    scene.others_lose_it(scene.at)
    return {(rank.node.plan.name, rank.rank) for rank in (scene.culprit, second)}


def lost_node(scene: Scene) -> Truth:
    """Its machine is gone; the others notice nothing, or their connections break."""
    node = scene.culprit.node

    def gone() -> None:
        node.over = True
        for rank in node.members:
            rank.alive = False
        node.lost = "no answer for 8 s"

    scene.job.later(scene.at + 8, gone)
    if scene.job.rng.random() < 0.5:
        for rank in scene.others:
            if rank.node is not node:
                scene.raises(rank, scene.at + 8.1, (*_HEAD, "RuntimeError: Connection reset by peer"))
    return {(node.plan.name, None)}


FAILURES = {
    each.__name__: each
    for each in (
        *(exception, exception_group, late_exception, out_of_memory, parent_killed, exits, early_leaver, frozen),
        *(busy, deadlock, two_at_once),
    )
} | {name: killed(name) for name in ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGTERM")}
LEAST = {"busy": 0.6}
"""The least part of an ending in which the right rank is named; of all endings together it is more than 95 %.

Nothing tells apart two ranks that run on and on."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    simulated = SimClock()
    for module in MODULES:
        monkeypatch.setattr(module, "time", simulated)
    return simulated


SCENES = st.tuples(
    st.integers(0, 2**32), st.integers(2, 3), st.integers(1, 2), st.booleans(), st.booleans()
)  # seed, nodes, ranks a node, detached, an older parent of the ranks
LOOSE = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def scene_of(clock: SimClock, drawn: tuple[int, int, int, bool, bool], *, most_s: float = 20.0) -> Scene:
    seed, nodes, ranks, detached, old = drawn
    rng = random.Random(seed)
    attached_at = rng.uniform(most_s, most_s + 700) if detached else 0.0
    job = SimJob(rng, nodes=nodes, ranks=ranks, attached_at=attached_at, old=old)
    clock.job = job
    return Scene(job=job, culprit=rng.choice(job.ranks), at=rng.uniform(1.0, most_s))


@pytest.mark.parametrize("name", FAILURES)
def test_failures(clock: SimClock, name: str) -> None:
    seen: list[bool] = []

    @LOOSE
    @given(SCENES)
    def one(drawn: tuple[int, int, int, bool, bool]) -> None:
        scene = scene_of(clock, drawn)
        truth = FAILURES[name](scene)
        outcome = scene.job.run()
        assert outcome.state == "failed" and outcome.failure is not None
        failure = outcome.failure
        if truth is None:
            assert failure.node is None or failure.suspect
            return
        assert failure.node is None or failure.rank is not None or failure.suspect
        assert failure.node is None or failure.node in {node for node, _ in truth}, failure.reason
        assert failure.rank is None or (failure.node, failure.rank) in truth, failure.reason
        if not scene.job.old:
            seen.append((failure.node, failure.rank) in truth)

    one()
    assert sum(seen) >= LEAST.get(name, 0.97) * len(seen)


@LOOSE
@given(SCENES)
def test_a_node_that_is_told_to_go(clock: SimClock, drawn: tuple[int, int, int, bool, bool]) -> None:
    """The others agree with it and end alike, or lose it, or go on until they are asked."""
    scene = scene_of(clock, drawn)
    job, node = scene.job, scene.culprit.node
    job.later(scene.at, node.told_to_go)
    how = job.rng.choice(["agree", "lose", "go on"])
    for rank in job.ranks:
        if rank.node is not node and how == "agree":
            job.later(scene.at + 0.4, lambda rank=rank: rank.end(143))
        elif rank.node is not node and how == "lose":
            scene.raises(rank, scene.at + job.rng.uniform(0.02, 0.5), (*_HEAD, _GONE[1]))
    outcome = job.run()
    assert_stopped(outcome, 143)
    assert outcome.told == (node.plan.name,)


@LOOSE
@given(SCENES)
def test_a_request_of_the_user(clock: SimClock, drawn: tuple[int, int, int, bool, bool]) -> None:
    scene = scene_of(clock, drawn, most_s=5.0)
    job = scene.job

    def stop() -> None:
        job.inbox.stop_requests.append(signal.SIGINT)
        job.shutdown.ask_ranks(signal.SIGINT)

    job.later(max(scene.at, job.attached_at - job.now) + 1, stop)
    assert_stopped(job.run(), 130)


@LOOSE
@given(SCENES)
def test_a_request_after_a_failure_hides_nothing(clock: SimClock, drawn: tuple[int, int, int, bool, bool]) -> None:
    scene = scene_of(clock, drawn)
    truth = exception(scene)
    job = scene.job
    job.later(max(scene.at, job.attached_at - job.now) + 1, lambda: job.inbox.stop_requests.append(signal.SIGINT))
    outcome = job.run()
    assert outcome.state == "failed" and outcome.failure is not None and truth is not None
    assert outcome.failure.node is None or (outcome.failure.node, outcome.failure.rank) in truth


@LOOSE
@given(SCENES)
def test_a_lost_node(clock: SimClock, drawn: tuple[int, int, int, bool, bool]) -> None:
    scene = scene_of(clock, (*drawn[:3], False, drawn[4]))
    truth = lost_node(scene)
    outcome = scene.job.run()
    assert outcome.state == "failed" and outcome.failure is not None and truth is not None
    assert (outcome.failure.node, outcome.failure.rank) in truth


@LOOSE
@given(SCENES)
def test_all_well(clock: SimClock, drawn: tuple[int, int, int, bool, bool]) -> None:
    scene = scene_of(clock, drawn)
    for rank in scene.job.ranks:
        scene.job.later(scene.at + scene.job.rng.uniform(0, 5), lambda rank=rank: rank.end(0))
    outcome = scene.job.run()
    assert (outcome.state, outcome.failure) == ("succeeded", None)


def assert_stopped(outcome: Outcome, code: int) -> None:
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", code, None)
