"""Reference loops, as people write them: the beginner tutorial's, and what is usually recommended.

Both are references, not straw men: the same networks, normalization, batch, rate, epochs and evaluation as the
trainer's, in a process of their own with torch's own choice of threads, on the GPU where there is one.

- `naive`: pytorch.org's "Training with PyTorch" (beginner/introyt/trainingyt): torchvision's data set, transforms of
  one PIL image at a time, a DataLoader without workers, fp32, SGD with plain momentum, the loss read at every step.
- `good-practice`: its performance tuning guide: as many workers as free cores, kept between epochs, pinned memory,
  channels_last, mixed precision on a GPU; the loss read at the end.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.served import limited, quiet_interrupt
from benchmarks.trainings import Training
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from trainer.distributed.cores import free_cores

if TYPE_CHECKING:
    import torch

NAIVE, GOOD_PRACTICE = "naive", "good-practice"
DATA = ROOT / "data"
"""The trainer's own copy, in torchvision's layout."""
MEAN, STD = (0.2860,), (0.3530,)
"""Fashion-MNIST's own, of its training images, as the trainer computes them."""
_TIMEOUT_S = 1800


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference training of Fashion-MNIST; the defaults are the tutorial's own setting."""

    way: str = NAIVE
    """NAIVE or GOOD_PRACTICE."""
    model: str = "tutorial-cnn"
    """One of `trainer.config.flags.MODELS`."""
    batch_size: int = 64
    epochs: int = 1
    lr: float = 0.001
    momentum: float = 0.9
    seed: int = 0
    stop_at: float | None = None
    """Test accuracy, 0..1, at which training ends before its epochs do."""


def train(reference: Reference, say: Callable[[str], None] = lambda _line: None) -> Training:
    """Train in a process of its own; call `say` after each epoch.

    Raises:
        RingmasterError: it failed, and what it said is on the screen; or it took too long.
    """
    command = [sys.executable, "-m", "benchmarks.naive", json.dumps(asdict(reference))]
    records = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            with limited(process, _TIMEOUT_S) as late:
                for line in process.stdout or ():
                    records.append(json.loads(line))
                    say("epoch {}: accuracy {test_accuracy:.4f}, {seconds:.1f} s".format(len(records), **records[-1]))
                code = process.wait()
        finally:
            process.terminate()
    if late.is_set():
        raise RingmasterError(f"the {reference.way} loop: no end after {_TIMEOUT_S} s", exit_code=ExitCode.FAILED)
    if code != 0:
        raise RingmasterError(f"the {reference.way} loop failed, see above", exit_code=ExitCode.FAILED)
    return Training(
        seconds=tuple(record["seconds"] for record in records),
        accuracies=tuple(record["test_accuracy"] for record in records),
        test_losses=tuple(record["test_loss"] for record in records),
    )


def loaders(reference: Reference) -> tuple[Iterable[Any], Iterable[Any]]:
    """Return training and test batches, (images, labels), as this way loads them."""
    import torch
    from torchvision import datasets, transforms

    whole = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    options: dict[str, Any] = {"batch_size": reference.batch_size}
    if reference.way == GOOD_PRACTICE:
        pinned = torch.cuda.is_available()
        options |= {"num_workers": free_cores(), "persistent_workers": True, "pin_memory": pinned}
    train_set = datasets.FashionMNIST(DATA, train=True, transform=whole)
    test_set = datasets.FashionMNIST(DATA, train=False, transform=whole)
    return (
        torch.utils.data.DataLoader(train_set, shuffle=True, **options),
        torch.utils.data.DataLoader(test_set, shuffle=False, **options),
    )


def epochs(reference: Reference) -> Iterator[dict[str, float]]:
    """Train in this process; yield after each epoch its seconds of training, and its results on the test images."""
    import torch

    from trainer.model import models

    torch.manual_seed(reference.seed)
    good = reference.way == GOOD_PRACTICE
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = models.build(reference.model, channels=1, size=28, classes=10).to(device)
    if good:
        model = model.to(memory_format=torch.channels_last)
    train_batches, test_loader = loaders(reference)
    test_batches = list(test_loader)  # evaluation is not what is measured, nor part of the seconds: loaded once
    optimizer = torch.optim.SGD(model.parameters(), lr=reference.lr, momentum=reference.momentum)
    step = good_step(model, optimizer, device) if good else naive_step(model, optimizer, device)
    for _ in range(reference.epochs):
        begun = time.monotonic()
        model.train()
        for images, labels in train_batches:
            step(images, labels)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.monotonic() - begun
        record = {"seconds": seconds, **_scores(model, test_batches, device)}
        yield record
        if reference.stop_at is not None and record["test_accuracy"] >= reference.stop_at:
            return


Step = Callable[["torch.Tensor", "torch.Tensor"], None]
"""One optimizer step on images (B, C, H, W) and labels (B,)."""


def naive_step(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer", device: "torch.device") -> Step:
    """Return the tutorial's step."""
    import torch

    criterion = torch.nn.CrossEntropyLoss()
    running = 0.0

    def step(images: "torch.Tensor", labels: "torch.Tensor") -> None:
        nonlocal running
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()

    return step


def good_step(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer", device: "torch.device") -> Step:
    """Return the step of the usual recommendations; fp16 with loss scaling on a GPU, fp32 elsewhere."""
    import torch

    criterion = torch.nn.CrossEntropyLoss()
    on_gpu = device.type == "cuda"
    scaler = torch.amp.GradScaler(device.type, enabled=on_gpu)

    def step(images: "torch.Tensor", labels: "torch.Tensor") -> None:
        images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.float16, enabled=on_gpu):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def _scores(model: "torch.nn.Module", batches: Iterable[Any], device: "torch.device") -> dict[str, float]:
    import torch

    model.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            loss += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum().item())
            count += len(labels)
    return {"test_loss": loss / count, "test_accuracy": right / count}


if __name__ == "__main__":
    with quiet_interrupt():
        for epoch in epochs(Reference(**json.loads(sys.argv[1]))):
            print(json.dumps(epoch), flush=True)
