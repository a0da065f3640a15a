"""The models. Input (N, channels, height, width), output logits (N, classes)."""

import torch
from torch import Tensor, nn


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
        """(N, C, size, size) to (N, classes)."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
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
        """(N, C, size, size) to (N, classes)."""
        hidden = nn.functional.max_pool2d(torch.relu(self.conv1(images)), 2)
        hidden = nn.functional.max_pool2d(torch.relu(self.conv2(hidden)), 2).flatten(1)
        logits: Tensor = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(hidden)))))
        return logits


def _resnet18(channels: int, classes: int) -> nn.Module:
    from torchvision.models import resnet18  # heavy to import, so only where it is asked for

    model: nn.Module = resnet18(num_classes=classes)
    # A 7x7 stride-2 stem and a max-pool leave nothing of 32 pixels: the usual CIFAR stem (He et al. 2016, 4.2).
    model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def build(name: str, *, channels: int, size: int, classes: int) -> nn.Module:
    """A freshly initialized model of `trainer.config.MODELS` for square pictures of `size` pixels."""
    match name:
        case "small-cnn":
            return SmallCNN(channels, classes, size)
        case "tutorial-cnn":
            return TutorialCNN(channels, classes, size)
        case "resnet18":
            return _resnet18(channels, classes)
        case _:
            raise ValueError(f"no model is called {name!r}")
