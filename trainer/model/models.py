"""The models. Input (N, channels, height, width), output logits (N, classes)."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from trainer.data.batches.protocols import TrainingImages
from trainer.errors import UserError
from trainer.model import torchvision_models

_EXAMPLES = 2
"""Batch normalization needs more than one value per channel, and some models leave one per image."""
WHITENING_EDGE, WHITENING_EPSILON = 2, 5e-4
"""Edge of the whitened patches in pixels, and a constant added to their variances (arXiv:2404.00498, section 3.1)."""
WHITENING_PIXELS = 5000 * 32 * 32
"""Where the patches come from: CIFAR's first 5,000 images, or fewer if they are larger."""


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class SmallCNN(nn.Module):
    """Three 3x3 convolutions of 16, 32 and 64 channels with batch normalization: the fast default."""

    def __init__(self, channels: int, classes: int, size: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(channels, width), _block(width, 2 * width), _block(2 * width, 4 * width))
        self.classifier = nn.Linear(4 * width * (size // 8) ** 2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, C, size, size) to (N, classes)."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits


class Scale(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, values: Tensor) -> Tensor:
        """Scale values of any shape."""
        return values * self.factor


class GlobalMax(nn.Module):
    """The largest value of each channel. (nn.AdaptiveMaxPool2d has no deterministic gradient on GPUs.)"""

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C)."""
        return maps.amax((2, 3))


class FastCNN(nn.Module):
    """Four 3x3 convolutions, pooled before they are normalized, global max-pooling and a scaled head.

    Narrow while the image is still large: area makes the first layers expensive, and width lets the last ones learn.

    In the manner of the speed-run literature (Page 2018, "How to train your ResNet"; Jordan 2024, arXiv:2404.00498).
    """

    def __init__(self, channels: int, classes: int, widths: tuple[int, int, int, int] = (16, 32, 128, 128)) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, *, pool: bool) -> list[nn.Module]:
            # Pooled first, so that the rest works on a quarter of the values.
            pooling: list[nn.Module] = [nn.MaxPool2d(2)] if pool else []
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            return [convolution, *pooling, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

        first, second, third, last = widths
        self.features = nn.Sequential(
            *block(channels, first, pool=True),
            *block(first, second, pool=True),
            *block(second, third, pool=True),
            *block(third, last, pool=False),
            GlobalMax(),
        )
        self.classifier = nn.Sequential(nn.Linear(last, classes, bias=False), Scale(0.5))

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, C, H, W), 8 pixels or more each way, to (N, classes)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits


class TutorialCNN(nn.Module):
    """The 6-16-120-84 network of PyTorch's beginner tutorials (after LeNet-5): no normalization, no dropout."""

    def __init__(self, channels: int, classes: int, size: int) -> None:
        super().__init__()
        side = ((size - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, C, size, size) to (N, classes)."""
        hidden = nn.functional.max_pool2d(torch.relu(self.conv1(images)), 2)
        hidden = nn.functional.max_pool2d(torch.relu(self.conv2(hidden)), 2).flatten(1)
        logits: Tensor = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(hidden)))))
        return logits


class AirbenchCNN(nn.Module):
    """airbench94's network (Jordan 2024, arXiv:2404.00498, section 3): whitening, three groups, max-pooling, a head.

    `whiten` makes the first convolution's filters from training images; they are not trained.
    """

    def __init__(self, channels: int, classes: int, widths: tuple[int, int, int] = (64, 256, 256)) -> None:
        super().__init__()
        patch = channels * WHITENING_EDGE**2
        self.whiten_conv = nn.Conv2d(channels, 2 * patch, WHITENING_EDGE)
        self.whiten_conv.weight.requires_grad = False
        groups = [_airbench_group(*pair) for pair in pairwise((2 * patch, *widths))]
        self.features = nn.Sequential(nn.GELU(), *groups, GlobalMax())
        self.classifier = nn.Sequential(nn.Linear(widths[-1], classes, bias=False), Scale(1 / 9))

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, C, H, W), 17 pixels or more each way, to (N, classes)."""
        logits: Tensor = self.classifier(self.features(self.whiten_conv(images)))
        return logits

    @torch.no_grad()
    def whiten(self, images: Tensor) -> None:
        """Set the first filters to the eigenvectors of the images' 2x2 patches, scaled to variance 1, and negated.

        `images`: normalized, (N, C, H, W).
        """
        weight = self.whiten_conv.weight
        channels = weight.shape[1]
        patches = images.unfold(2, WHITENING_EDGE, 1).unfold(3, WHITENING_EDGE, 1)
        rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, channels * WHITENING_EDGE**2).double()
        variances, directions = torch.linalg.eigh(rows.T @ rows / len(rows))
        filters = (directions / (variances + WHITENING_EPSILON).sqrt()).T.reshape(-1, *weight.shape[1:])
        weight.copy_(torch.cat([filters, -filters]))


def _airbench_group(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, width in enumerate((inputs, outputs)):
        convolution = nn.Conv2d(width, outputs, 3, padding=1, bias=False)
        nn.init.dirac_(convolution.weight[:width])  # at first each channel passes its input on
        norm = nn.BatchNorm2d(outputs, momentum=0.4, eps=1e-12)
        norm.weight.requires_grad = False
        layers += [convolution, *([] if number else [nn.MaxPool2d(2)]), norm, nn.GELU()]
    return nn.Sequential(*layers)


def build(name: str, *, channels: int, size: int, classes: int) -> nn.Module:
    """Return a freshly initialized model, ours or torchvision's, for square images of `size` pixels.

    Raises:
        UserError: exit code 2, if the model can't take images of this size.
    """
    try:
        model = _make(name, channels, size, classes)
        _try(model, channels, size)
    except (AssertionError, RuntimeError, ValueError) as error:  # how torchvision and torch refuse a size
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"argument --model: {name} can't take images of {size} x {size} pixels ({reason}); choose another model, "
            "or larger images",
            exit_code=2,
        ) from error
    return model


def _make(name: str, channels: int, size: int, classes: int) -> nn.Module:
    match name:
        case "small-cnn":
            return SmallCNN(channels, classes, size)
        case "tutorial-cnn":
            return TutorialCNN(channels, classes, size)
        case "fast-cnn":
            return FastCNN(channels, classes)
        case "fast-cnn-wide":
            return FastCNN(channels, classes, widths=(32, 64, 256, 256))
        case "airbench-cnn":
            return AirbenchCNN(channels, classes)
        case _:
            return torchvision_models.make(name, channels=channels, size=size, classes=classes)


def _try(model: nn.Module, channels: int, size: int) -> None:
    """Run a forward pass on torch's meta device, which has shapes only: no arithmetic, and the model stays as it is."""
    state = {name: value.to("meta") for name, value in model.state_dict(keep_vars=True).items()}
    state |= {name: value.to("meta") for name, value in model.named_buffers()}  # also the ones that aren't saved
    with torch.random.fork_rng(devices=[]):
        torch.func.functional_call(model, state, (torch.zeros(_EXAMPLES, channels, size, size, device="meta"),))


def fit_to_data(model: nn.Module, train: TrainingImages, *, size: int) -> None:
    """Initialize what a model takes from its training images of `size` pixels, the same on every rank."""
    if isinstance(model, AirbenchCNN):
        images, _ = train.example(min(max(1, WHITENING_PIXELS // size**2), len(train)))
        model.whiten(images)
