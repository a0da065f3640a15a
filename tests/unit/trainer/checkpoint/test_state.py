import io
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from trainer.checkpoint.files import Progress
from trainer.checkpoint.state import Parts, capture, model_bytes, restore
from trainer.distributed.world import World
from trainer.errors import UserError
from trainer.model import models
from trainer.model.precision import choose

CPU = torch.device("cpu")
ALONE = World(rank=0, local_rank=0, world_size=1, nodes=1, device=CPU, backend="gloo", data_group=None)
START = Progress(
    step=0,
    epoch=0,
    position=0,
    world_size=1,
    global_batch=8,
    dataset="synthetic",
    model="small-cnn",
    optimizer="sgd",
    torch=str(torch.__version__),
    test_accuracy=None,
)


def make(model: str = "small-cnn", *, size: int = 28, classes: int = 10) -> Parts:
    built = models.build(model, channels=1, size=size, classes=classes)
    optimizer = torch.optim.SGD(built.parameters(), lr=0.1, momentum=0.9)
    return Parts(model=built, optimizer=optimizer, scaler=choose("fp32", CPU, model).scaler())


def step(parts: Parts) -> None:
    images = torch.randn(8, 1, 28, 28)
    parts.optimizer.zero_grad()
    nn.functional.cross_entropy(parts.model(images), torch.randint(0, 10, (8,))).backward()
    parts.optimizer.step()


def saved(parts: Parts, progress: Progress = START) -> bytes:
    content = capture(parts, progress, ALONE)
    assert content is not None
    return content


def test_everything_the_next_step_depends_on_comes_back() -> None:
    torch.manual_seed(1)
    parts = make()
    step(parts)
    progress = replace(START, step=7, position=7)
    content = saved(parts, progress)
    step(parts)  # draws its images from the generator, whose state is part of the checkpoint
    other = make()
    assert restore(content, other, START, ALONE, seed=0, say=print) == progress
    step(other)
    for (name, ours), theirs in zip(parts.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_hyper_parameters_are_this_runs() -> None:
    parts = make()
    step(parts)
    other = make()
    other.optimizer.param_groups[0]["momentum"] = 0.5
    restore(saved(parts), other, START, ALONE, seed=0, say=print)
    assert other.optimizer.param_groups[0]["momentum"] == 0.5
    assert other.optimizer.state_dict()["state"][0]["momentum_buffer"] is not None


def _momentum(parts: Parts) -> dict[str, torch.Tensor]:
    state = parts.optimizer.state
    return {name: state[parameter]["momentum_buffer"] for name, parameter in parts.model.named_parameters()}


def test_momentum_finds_its_parameter_in_other_groups_and_another_memory_order() -> None:
    parts = make()
    step(parts)
    other = make()
    other.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's overloads
    biases = [parameter for name, parameter in other.model.named_parameters() if name.endswith("bias")]
    weights = [parameter for name, parameter in other.model.named_parameters() if not name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": biases}, {"params": weights}], lr=0.1, momentum=0.9, fused=True)
    again = Parts(model=other.model, optimizer=optimizer, scaler=other.scaler)
    restore(saved(parts), again, START, ALONE, seed=0, say=print)
    for name, momentum in _momentum(again).items():
        assert torch.equal(momentum, _momentum(parts)[name]), name
        assert momentum.stride() == dict(again.model.named_parameters())[name].stride(), name


def test_a_checkpoint_numbered_by_position_is_read_too() -> None:
    parts = make()
    step(parts)
    content = torch.load(io.BytesIO(saved(parts)), weights_only=True)
    content["optimizer"] = dict(enumerate(content["optimizer"].values()))
    buffer = io.BytesIO()
    torch.save(content, buffer)
    other = make()
    restore(buffer.getvalue(), other, START, ALONE, seed=0, say=print)
    for name, momentum in _momentum(other).items():
        assert torch.equal(momentum, _momentum(parts)[name]), name


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "tutorial-cnn"}, "conv1.weight"),
        ({"classes": 12}, r"classifier.weight has shape \[10, 576\] instead of \[12, 576\]"),
        ({"size": 32}, "classifier.weight"),
    ],
)
def test_another_model_is_refused_naming_the_key(change: dict[str, object], named: str) -> None:
    other = make(**change)  # type: ignore[arg-type]
    expected = replace(START, model=str(change.get("model", START.model)))
    with pytest.raises(UserError, match=named) as caught:
        restore(saved(make()), other, expected, ALONE, seed=0, say=print)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("change", [{"dataset": "cifar10"}, {"optimizer": "adamw"}])
def test_another_data_set_or_optimizer_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(UserError, match=next(iter(change.values()))) as caught:
        restore(saved(make()), make(), replace(START, **change), ALONE, seed=0, say=print)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_folders_are_told_apart_by_classes_and_files() -> None:
    content = saved(make(), replace(START, dataset="folder:aa/11"))
    said: list[str] = []
    restore(content, make(), replace(START, dataset="folder:aa/11"), ALONE, seed=0, say=said.append)
    assert said == []
    restore(content, make(), replace(START, dataset="folder:aa/22"), ALONE, seed=0, say=said.append)
    assert [line[:32] for line in said] == ["warning: the files in --data are"]
    for dataset, named in (
        ("folder:bb/11", "other classes than .* in --data"),
        ("cifar10", "--dataset folder, .* cifar10"),
    ):
        with pytest.raises(UserError, match=named) as caught:
            restore(content, make(), replace(START, dataset=dataset), ALONE, seed=0, say=print)
        assert caught.value.exit_code == 2


def test_another_number_of_ranks_is_fine_and_said() -> None:
    content = saved(make())
    said: list[str] = []
    states = []
    for rank in (0, 1, 0):
        world = replace(ALONE, rank=rank, world_size=2)
        restore(content, make(), START, world, seed=0, say=said.append)
        states.append(torch.get_rng_state())
    assert "1 rank(s), this run has 2" in said[0]
    assert torch.equal(states[0], states[2]) and not torch.equal(states[0], states[1])


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.putenv, ("RINGMASTER_OWNED", 1)


def test_a_pickle_that_runs_code_is_refused() -> None:
    buffer = io.BytesIO()
    torch.save({"progress": _Hostile()}, buffer)
    with pytest.raises(UserError, match="not one of this trainer's") as caught:
        restore(buffer.getvalue(), make(), START, ALONE, seed=0, say=print)
    assert caught.value.exit_code == 4


def test_short_memory_is_not_blamed_on_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    content = saved(make())
    monkeypatch.setattr(torch, "load", short)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        restore(content, make(), START, ALONE, seed=0, say=print)


def test_the_saved_model_fits_a_plain_one() -> None:
    state = torch.load(io.BytesIO(model_bytes(make().model)), weights_only=True)
    models.build("small-cnn", channels=1, size=28, classes=10).load_state_dict(state)
