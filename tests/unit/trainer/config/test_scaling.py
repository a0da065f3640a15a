import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config.run_config import parse
from trainer.config.scaling import batch_rule, learning_rate, lr_factor, plan_batch, steps_per_epoch, total_steps
from trainer.errors import UserError

counts = st.integers(1, 64)


@given(batch=st.integers(1, 10_000), ranks=counts, accumulate=counts)
def test_strong_scaling_keeps_the_batch_but_for_rounding(batch: int, ranks: int, accumulate: int) -> None:
    config = parse([f"--batch-size={batch}", f"--accumulate={accumulate}"], {}).batch
    plan = plan_batch(config, world_size=ranks)
    parts = ranks * accumulate
    assert plan.global_batch == plan.micro_batch * parts > 0
    assert abs(plan.global_batch - batch) <= max(parts / 2, parts - batch)
    assert ("rounded from" in batch_rule(config, plan)) == (plan.global_batch != batch)


def test_weak_scaling_multiplies_the_batch_and_the_learning_rate() -> None:
    config = parse(["--scaling", "weak", "--batch-size", "64"], {})
    one, four = (plan_batch(config.batch, world_size=ranks).global_batch for ranks in (1, 4))
    assert (one, four) == (64, 256)
    assert learning_rate(config.optimization, config.model, four)[0] == pytest.approx(
        4 * learning_rate(config.optimization, config.model, one)[0]
    )


def test_learning_rate_rules() -> None:
    sgd = parse([], {}).optimization
    assert learning_rate(sgd, "small-cnn", 512)[0] == pytest.approx(2 * learning_rate(sgd, "small-cnn", 256)[0])
    adamw = parse(["--optimizer", "adamw"], {}).optimization
    assert learning_rate(adamw, "small-cnn", 1024)[0] == pytest.approx(2 * learning_rate(adamw, "small-cnn", 256)[0])
    assert learning_rate(parse(["--lr", "0.3"], {}).optimization, "small-cnn", 1024) == (0.3, "lr 0.3 as given")


def test_steps() -> None:
    assert steps_per_epoch(1000, 256) == 3
    assert total_steps(parse(["--epochs", "2"], {}).training, 3) == 6
    assert total_steps(parse(["--epochs", "2", "--max-steps", "4"], {}).training, 3) == 4
    with pytest.raises(UserError, match="at most 100"):
        steps_per_epoch(100, 101)


@given(
    total=st.integers(1, 500),
    schedule=st.sampled_from(["triangular", "cosine", "constant"]),
    warmup=st.floats(0, 1),
)
def test_schedule_rises_then_falls_and_never_reaches_zero(total: int, schedule: str, warmup: float) -> None:
    factors = [lr_factor(step, total=total, schedule=schedule, warmup=warmup) for step in range(1, total + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def test_schedule_peaks_after_the_warm_up() -> None:
    factors = [lr_factor(step, total=10, schedule="triangular", warmup=0.3) for step in range(1, 11)]
    assert factors.index(1.0) == 3
    assert factors[0] == 0.25 and factors[-1] == pytest.approx(1 / 7)
