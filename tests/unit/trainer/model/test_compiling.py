"""When a model is compiled, and that a trial leaves no trace. The compiler itself is tested if there is one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainer.model import compiling
from trainer.model.compiling import Request, Trial, choose, keep_cache, verdict
from trainer.model.precision import Precision

CPU = torch.device("cpu")
PRECISION = Precision(name="fp32", device_type="cpu")


class Images:
    """Training data of any length."""

    def example(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(count, 3, 4, 4), torch.arange(count) % 2


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 2))


def request(how: str = "auto", **fields: Any) -> Request:
    return Request(**{"how": how, "passes": 1000, "accumulate": 1, "deterministic": False, **fields})


def trial(device: torch.device = CPU) -> Trial:
    return Trial(data=Images(), batch=4, precision=PRECISION, device=device)  # type: ignore[arg-type]


class Clock:
    """Stands for the results of trials: seconds of the plain model and of the compiled one, on two ranks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plain: float | str, compiled: float | str) -> None:
        self.said: list[str] = []
        self.plain = model()
        self.compiled = model()
        monkeypatch.setattr(compiling, "_compiled", lambda _model, _how: self.compiled)
        monkeypatch.setattr(compiling, "_missing", lambda _how, _device: None)
        monkeypatch.setattr(
            compiling, "_seconds_or_problem", lambda tried, _trial: compiled if tried is self.compiled else plain
        )

    def choose(self, asked: Request, other: Callable[[Any], Any] = lambda own: own, device: str = "cuda") -> nn.Module:
        """`other`: the other rank's result, from this one's."""
        ways = trial(torch.device(device))
        return choose(self.plain, asked, ways, lambda own: [own, other(own)], self.said.append)


@pytest.mark.parametrize(
    ("asked", "device"),
    [(request("off"), "cuda"), (request(), "cpu"), (request(deterministic=True), "cuda")],
)
def test_no_trial_runs(asked: Request, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1.0, 0.1)
    assert clock.choose(asked, device=device) is clock.plain
    assert clock.said == []


def test_auto_leaves_short_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.1, 0.01)
    assert clock.choose(request(passes=1199)) is clock.plain
    assert clock.choose(request(passes=1201)) is clock.compiled


def test_auto_takes_what_is_faster_on_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1.0, 0.9)
    assert clock.choose(request()) is clock.compiled
    assert clock.choose(request(), lambda own: 1.2 if own == 1.0 else 1.1) is clock.compiled
    assert clock.choose(request(), lambda own: own if own == 1.0 else 1.1) is clock.plain
    assert "not compiled: 1000.0 ms a pass eagerly, 1100.0 compiled" in clock.said


@pytest.mark.parametrize("how", ["auto", "on", "graphs"])
def test_a_failure_on_one_rank_makes_all_eager(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1.0, 0.1)
    assert clock.choose(request(how), lambda own: own if own == 1.0 else "Boom: no") is clock.plain
    assert clock.said == ["warning: --compile: Boom: no; training eagerly"]


def test_on_asks_no_stopwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.1, 0.2)
    assert clock.choose(request("on", passes=1), device="cpu") is clock.compiled


def test_graphs_with_accumulation_keep_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1.0, 0.1)
    assert clock.choose(request("graphs", accumulate=2)) is clock.compiled
    weight = clock.plain[0].weight
    source = torch.ones_like(weight, requires_grad=True)
    (weight * source).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, source.detach())
    assert weight._backward_hooks


def test_graphs_without_a_gpu_train_eagerly() -> None:
    said: list[str] = []
    plain = model()
    assert choose(plain, request("graphs"), trial(), lambda own: [own], said.append) is plain
    assert said == ["warning: --compile: CUDA graphs need a GPU; training eagerly"]


def test_a_trial_leaves_no_trace() -> None:
    tried = model()
    before = {name: value.clone() for name, value in tried.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    seconds = compiling._seconds_or_problem(tried, Trial(data=Images(), batch=4, precision=PRECISION, device=CPU))  # type: ignore[arg-type]
    assert isinstance(seconds, float) and seconds > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in tried.state_dict().items())
    assert all(parameter.grad is None for parameter in tried.parameters())


def test_what_fails_is_said_in_a_line() -> None:
    wrong = nn.Linear(1, 1)
    problem = compiling._seconds_or_problem(wrong, trial())
    assert isinstance(problem, str) and problem.startswith("RuntimeError: ") and "\n" not in problem


def test_the_cache_is_kept_beside_the_data(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiling.os, "environ", dict(compiling.os.environ))
    keep_cache(tmp_path / "none")
    assert "TORCHINDUCTOR_CACHE_DIR" not in compiling.os.environ
    keep_cache(tmp_path)
    keep_cache(tmp_path.parent)
    assert compiling.os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compiled")


def test_verdict() -> None:
    assert verdict(0.2, 0.1) == ("compiled: 200.0 ms a pass eagerly, 100.0 compiled", True)
