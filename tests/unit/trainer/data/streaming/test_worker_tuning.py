from collections.abc import Callable

import pytest

from trainer.data.streaming import worker_tuning
from trainer.data.streaming.worker_tuning import Tuning, best, candidates, drained, second_round


@pytest.mark.parametrize(
    ("cores", "tried"),
    [(1, (1, 0, 2)), (2, (2, 0, 1, 3)), (4, (4, 0, 1, 2, 3, 5)), (16, (16, 0, 4, 8, 12, 20))],
)
def test_numbers_around_the_free_cores_are_tried(cores: int, tried: tuple[int, ...]) -> None:
    assert candidates(cores) == tried


def test_of_equals_the_fewest_workers_are_taken() -> None:
    assert best({2: [100.0], 0: [50.0], 3: [102.0]}) == 2
    assert best({2: [100.0], 0: [99.0]}) == 0
    assert best({2: [100.0], 3: [120.0]}) == 3


def test_a_checkpoint_in_a_trial_does_no_harm() -> None:
    assert best({2: [20.0, 100.0], 1: [60.0, 61.0]}) == 2


def test_the_second_round_is_for_those_near_the_best() -> None:
    assert second_round({2: [100.0], 0: [50.0], 1: [60.0], 3: [90.0]}) == [3, 2]
    assert second_round({2: [100.0], 0: [50.0]}) == []


def test_what_is_under_way_at_a_trials_end_is_not_measured() -> None:
    assert drained(0, chunks=4) == 0
    assert drained(1, chunks=4) == 2  # two chunks wait, four are in the batch that is filled
    assert drained(8, chunks=4) == 5


def run(tuning: Tuning, rate: Callable[[int], float], *, epoch: int = 400, waited: float = 0.5) -> int:
    """Train as if `rate` were the batches per second of each number of workers; return the batches it took."""
    batches = 0
    for _ in range(200):
        left = epoch
        while trial := tuning.trial(left):
            assert trial.batches <= left
            left, batches = left - trial.batches, batches + trial.batches
            seconds = trial.measured / rate(trial.workers)
            tuning.record(trial, seconds=seconds, waited=waited * seconds)
        if tuning.settled:
            break
    return batches


MACHINES: list[dict[int, float]] = [
    {0: 10, 1: 10, 2: 20, 3: 20},  # nothing but decoding
    {0: 10, 1: 14, 2: 13, 3: 9},  # steps compete for the cores
    {0: 30, 1: 10, 2: 12, 3: 12},  # handing over costs more than it brings
    {0: 10, 1: 10, 2: 10, 3: 10},  # the step is all that counts
    {0: 10, 1: 18, 2: 25, 3: 33},
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("epoch", [1, 2, 5, 8, 12, 16, 20, 25, 148, 400])
@pytest.mark.parametrize("chunks", [1, 4])
def test_the_choice_is_near_the_best_and_never_behind_no_workers(
    machine: dict[int, float], epoch: int, chunks: int
) -> None:
    tuning = Tuning(cores=2, competes=True, chunks=chunks, epoch=epoch)
    run(tuning, lambda number: machine[number], epoch=epoch)
    assert tuning.settled
    assert machine[tuning.workers] >= 0.9 * max(machine.values())
    assert machine[tuning.workers] >= machine[0]
    assert set(tuning.rates) == {0, 1, 2, 3}


def test_the_choice_is_the_same_whatever_the_speed() -> None:
    taken = []
    for speed in (0.1, 1.0, 1000.0):
        tuning = Tuning(cores=2, competes=True, chunks=4, epoch=100_000)
        run(tuning, lambda number, speed=speed: speed * (1 + number), epoch=100_000)  # type: ignore[misc]
        taken.append(tuning.workers)
    assert taken == [3, 3, 3]


def test_trials_take_seconds_not_minutes() -> None:
    tuning = Tuning(cores=16, competes=True, chunks=16, epoch=100_000)
    seconds = 0.0

    def rate(number: int) -> float:
        return 0.25 * max(number, 1)

    while trial := tuning.trial(100_000):
        took = trial.measured / rate(trial.workers)
        seconds += took
        tuning.record(trial, seconds=took, waited=took)
    assert len(tuning.rates) == 6
    assert seconds < 30  # one worker alone needs 4 s for a batch


def test_a_slow_pilot_does_not_make_trials_short() -> None:
    tuning = Tuning(cores=2, competes=True, chunks=4, epoch=100_000)
    slow = 0.4
    measured = []
    while trial := tuning.trial(100_000):
        tuning.record(trial, seconds=max(slow, trial.measured * 0.001), waited=0.0)
        measured.append(trial.measured)
        slow = 0.0
    assert measured[:2] == [worker_tuning.PILOT_BATCHES, 4]
    assert min(measured[2:]) >= 0.5 * 1000 * worker_tuning.TRIAL_SECONDS


def test_where_a_gpu_never_waits_nothing_is_tried() -> None:
    tuning = Tuning(cores=8, competes=False, chunks=4, epoch=400)
    run(tuning, lambda _: 10.0, waited=0.001)
    assert (tuning.settled, tuning.workers, list(tuning.rates)) == (True, 8, [8])


def test_steps_on_the_cpu_may_gain_from_fewer_workers_even_so() -> None:
    tuning = Tuning(cores=2, competes=True, chunks=4, epoch=400)
    run(tuning, lambda number: 10.0 - number, waited=0.001)
    assert tuning.workers == 0


def test_a_number_given_is_not_questioned() -> None:
    tuning = Tuning(cores=2, competes=True, chunks=4, epoch=400, fixed=7)
    assert (tuning.settled, tuning.workers, tuning.trial(1000)) == (True, 7, None)


def test_short_epochs_are_measured_whole_but_for_a_numbers_first() -> None:
    tuning = Tuning(cores=2, competes=True, chunks=4, epoch=3)
    first = tuning.trial(3)
    assert first is not None
    assert (first.workers, first.skipped, first.measured) == (2, 3, 0)
    tuning.record(first, seconds=0.0, waited=0.0)
    for _ in range(2):  # one is too short to tell
        second = tuning.trial(3)
        assert second is not None
        assert (second.workers, second.skipped, second.measured) == (2, 0, 3)
        tuning.record(second, seconds=worker_tuning.TRIAL_SECONDS / 6, waited=0.0)
    assert tuning.rates == {2: [pytest.approx(18 / worker_tuning.TRIAL_SECONDS)]}


def test_the_rest_of_a_short_epoch_is_not_measured() -> None:
    tuning = Tuning(cores=2, competes=True, chunks=4, epoch=3)
    assert tuning.trial(2) is None
    assert tuning.workers == 2


def test_ranks_with_the_same_measurements_decide_the_same() -> None:
    plans = []
    for _ in range(2):
        tuning, plan, left = Tuning(cores=2, competes=True, chunks=1, epoch=10_000), [], 10_000
        while trial := tuning.trial(left):
            plan.append(trial)
            left -= trial.batches
            tuning.record(trial, seconds=trial.measured * 0.01 * (3 - min(trial.workers, 2)), waited=0.0)
        plans.append(plan)
    assert plans[0] == plans[1]
    assert len(plans[0]) > len(worker_tuning.candidates(2))
