"""The optimizers, fused into one kernel if torch has one for the device."""

from typing import Any

import torch
from torch import nn

from trainer.config.scaling import WEIGHT_DECAY
from trainer.config.sections import OptimizationConfig


def build(config: OptimizationConfig, model: nn.Module, peak_lr: float) -> torch.optim.Optimizer:
    """Return SGD with Nesterov momentum, or AdamW; the schedule's factor multiplies each group's `peak_lr`.

    With `--bias-lr-scale`, biases (it is meant for those of normalization) learn that many times faster and decay that
    many times slower (Jordan 2024, arXiv:2404.00498, section 3.4).
    """
    decay = WEIGHT_DECAY[config.optimizer] if config.weight_decay is None else config.weight_decay
    scale = config.bias_lr_scale
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    biases = [parameter for name, parameter in named if name.endswith("bias") and scale != 1]
    weights = [parameter for name, parameter in named if not (name.endswith("bias") and scale != 1)]
    groups: list[dict[str, Any]] = [{"params": weights, "peak_lr": peak_lr, "weight_decay": decay}]
    if biases:
        groups.append({"params": biases, "peak_lr": peak_lr * scale, "weight_decay": decay / scale})
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=peak_lr, fused=True)
    nesterov = config.momentum > 0  # torch refuses it without momentum
    return torch.optim.SGD(groups, lr=peak_lr, momentum=config.momentum, nesterov=nesterov, fused=True)
