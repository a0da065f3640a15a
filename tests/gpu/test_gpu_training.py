"""Training on a GPU: number formats, where the data lives, compiling, several GPUs."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.data.batches.resident import Resident
from trainer.distributed import world as distributed
from trainer.distributed.world import World
from trainer.model import compiling

Run = Callable[..., list[dict[str, Any]]]
SHORT = ("--model", "small-cnn", "--max-steps", "12", "--lr", "0.05")


def last_loss(records: list[dict[str, Any]]) -> float:
    return float([record["loss"] for record in records if record["kind"] == "step" and "loss" in record][-1])


def world() -> World:
    device = torch.device("cuda", 0)
    return World(rank=0, local_rank=0, world_size=1, nodes=1, device=device, backend="nccl", data_group=None)


@pytest.mark.parametrize("recipe", ["fashion-mnist", "cifar10"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_recipes_learn_in_every_number_format(recipe: str, precision: str, trained: Run) -> None:
    if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bf16")
    records = trained("--recipe", recipe, "--precision", precision, "--batch-size", "256", "--epochs", "3")
    start = next(record for record in records if record.get("event") == "start")
    assert (start["precision"], start["device"]) == (precision, torch.cuda.get_device_name(0))
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert epochs[-1]["test_loss"] < epochs[0]["test_loss"]
    assert epochs[-1]["test_accuracy"] > 0.5


@pytest.mark.parametrize("recipe", ["fashion-mnist", "cifar10"])
def test_the_recipes_can_be_repeated_bit_by_bit(recipe: str, trained: Run) -> None:
    flags = ("--recipe", recipe, "--deterministic", "--batch-size", "256", "--max-steps", "12")
    first, again = (last_loss(trained(*flags, name=name)) for name in ("first", "again"))
    assert first == again


def test_images_live_on_the_device() -> None:
    images = torch.randint(256, (64, 1, 28, 28), dtype=torch.uint8)
    device = torch.device("cuda", 0)
    resident = Resident(images, torch.arange(64) % 10, mean=(0.5,), std=(0.25,), device=device)
    batch, labels = resident.example(16)
    assert batch.device == labels.device == device
    wanted = (images[:16].float() / 255 - 0.5) / 0.25
    torch.testing.assert_close(batch.cpu(), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("accumulate", ["1", "2"])
@pytest.mark.parametrize("how", ["on", "graphs"])
def test_compiled_training_finds_the_same_loss(how: str, accumulate: str, trained: Run) -> None:
    flags = (*SHORT, "--precision", "fp32", "--accumulate", accumulate)
    eager = last_loss(trained(*flags, "--compile", "off", name="eager"))
    assert last_loss(trained(*flags, "--compile", how, name=how)) == pytest.approx(eager, rel=0.02)


def test_a_long_run_is_compiled_where_that_is_faster(
    trained: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "WORTH_SECONDS", 0.0)
    trained(*SHORT)
    assert " ms a pass eagerly, " in capsys.readouterr().out


def test_a_short_run_is_not(trained: Run, capsys: pytest.CaptureFixture[str]) -> None:
    trained(*SHORT)
    assert "not compiled: the run takes about" in capsys.readouterr().out


def test_nccl_alone_gives_the_gradients_of_the_plain_model(record_property: Callable[[str, object], None]) -> None:
    """In a world of one, DDP's wrapper changes nothing; its cost is recorded."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 9)
    )
    model = model.to("cuda")
    images = torch.randn(256, 1, 28, 28, device="cuda")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        wrapped = distributed.with_gradients_averaged(copy.deepcopy(model), world(), accumulate=1)
        for _ in range(3):  # the static graph is known from the second pass on
            gradients = []
            for called in (model, wrapped):
                called.zero_grad(set_to_none=True)
                called(images).square().mean().backward()
                gradients.append([parameter.grad.clone() for parameter in called.parameters()])
            torch.testing.assert_close(gradients[0], gradients[1])
        for name, called in (("plain_ms", model), ("wrapped_ms", wrapped)):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(50):
                called(images).square().mean().backward()
            end.record()
            torch.cuda.synchronize()
            record_property(name, start.elapsed_time(end) / 50)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_data_parallel_trains_as_one_gpu_does(precision: str, trained: Run, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    one = last_loss(trained(*SHORT, "--precision", precision, "--strategy", "none", name="one"))
    several = last_loss(trained(*SHORT, "--precision", precision, "--strategy", "dp", name="several"))
    assert several == pytest.approx(one, rel=0.1), "normalization sees a part of the batch on each GPU"
    keys = [
        set(torch.load(tmp_path / name / "checkpoints" / "model.pt", weights_only=True)) for name in ("one", "several")
    ]
    assert keys[0] == keys[1]


def test_data_parallel_on_one_gpu_is_the_plain_training(trained: Run) -> None:
    if torch.cuda.device_count() > 1:
        pytest.skip("there are several GPUs")
    flags = (*SHORT, "--precision", "fp32", "--deterministic")
    plain = last_loss(trained(*flags, "--strategy", "none", name="plain"))
    assert last_loss(trained(*flags, "--strategy", "dp", name="dp")) == pytest.approx(plain, rel=1e-4)
