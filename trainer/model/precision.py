"""Number formats for the forward and backward pass."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.amp import GradScaler

from trainer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A number format on a device. Parameters and optimizer state stay fp32 in each."""

    name: str
    device_type: str

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of a forward pass and its loss."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device_type, dtype=torch.bfloat16 if self.name == "bf16" else torch.float16)

    def scaler(self) -> GradScaler:
        """Return loss scaling, which fp16's narrow range needs; it does nothing for the other formats."""
        return GradScaler(self.device_type, enabled=self.name == "fp16")


FASTER_IN_BF16_ON_CPU = ("fast-cnn", "fast-cnn-wide", "airbench-cnn")
"""Models that bf16 makes faster on a CPU with bf16 instructions, at equal accuracy; small convolutions don't gain."""


def choose(name: str, device: torch.device, model: str) -> Precision:
    """Return the number format that `--precision` means.

    `auto`: on GPUs bf16 if they compute in it, else fp16; on CPUs fp32, but bf16 if both processor and model are known
    to gain from it.

    Raises:
        UserError: exit code 2, if the device doesn't have that format.
    """
    on_gpu = device.type == "cuda"
    # Emulated bf16 (before Ampere) is slower than fp32.
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        gains = model in FASTER_IN_BF16_ON_CPU and torch.cpu._is_avx512_bf16_supported()
        name = ("bf16" if has_bf16 else "fp16") if on_gpu else "bf16" if gains else "fp32"
    if name == "fp16" and not on_gpu:
        raise UserError("argument --precision: fp16 needs a GPU; use fp32 or bf16 here", exit_code=2)
    if name == "bf16" and on_gpu and not has_bf16:
        raise UserError(
            f"argument --precision: {torch.cuda.get_device_name(device)} has no bf16; use auto or fp16", exit_code=2
        )
    return Precision(name=name, device_type=device.type)
