"""`--strategy dp`: one process, all GPUs of its node, each step's images divided among them."""

import torch
from torch import Tensor, nn

from trainer.model.precision import Precision


class _Autocast(nn.Module):
    """Sets the number format itself: DataParallel's threads don't inherit the caller's."""

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self._model = model
        self._precision = precision

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits."""
        with self._precision.autocast():
            logits: Tensor = self._model(images)
        return logits


def data_parallel(model: nn.Module, precision: Precision) -> nn.Module:
    """Return the module to call in training, on all GPUs; `model`, on the first one, keeps parameters and keys."""
    return nn.DataParallel(_Autocast(model, precision), device_ids=list(range(torch.cuda.device_count())))
