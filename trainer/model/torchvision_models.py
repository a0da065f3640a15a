"""torchvision's classification models, untrained, for any image size and number of channels that they can take."""

from typing import Any

from torch import nn

SMALL_IMAGES = 64
"""Below this edge in pixels ResNets get the CIFAR stem."""


def make(name: str, *, channels: int, size: int, classes: int) -> nn.Module:
    """Return a freshly initialized model of `model_names.TORCHVISION_MODELS` for square images of `size` pixels.

    Raises:
        AssertionError, ValueError: torchvision refuses that size. Other models fail when they are called.
    """
    from torchvision import models  # slow to import, so only if it is needed

    extra: dict[str, Any] = {}
    if name in {"googlenet", "inception_v3"}:
        # Their auxiliary classifiers (for gradients in the days before normalization) return more than logits.
        extra = {"aux_logits": False, "init_weights": True}
    elif name.startswith("vit_"):
        extra = {"image_size": size}
    elif name.startswith("maxvit_"):
        extra = {"input_size": (size, size)}
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes, **extra)
    if isinstance(model, models.ResNet) and size < SMALL_IMAGES:
        # A 7x7 stride-2 stem and a max-pool leave little of 32 pixels: the usual CIFAR stem (He et al. 2016, 4.2).
        model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        _replace_first_convolution(model, channels)
    return model


def _replace_first_convolution(model: nn.Module, channels: int) -> None:
    """Give the first convolution another number of input channels; each of torchvision's models begins with one."""
    name, old = next((name, part) for name, part in model.named_modules() if isinstance(part, nn.Conv2d))
    assert old.groups == 1
    assert isinstance(old.padding, tuple)
    parent, _, last = name.rpartition(".")
    new = nn.Conv2d(
        channels,
        old.out_channels,
        (old.kernel_size[0], old.kernel_size[1]),
        stride=(old.stride[0], old.stride[1]),
        padding=(old.padding[0], old.padding[1]),
        dilation=(old.dilation[0], old.dilation[1]),
        bias=old.bias is not None,
    )
    setattr(model.get_submodule(parent), last, new)
