"""Decoding JPEG files on the GPU, with nvJPEG. Not measured yet."""

from dataclasses import replace

import torch

from trainer.data.streaming.decode import Decoded, ImageDataset, cut, io


def on_gpu(decoded: Decoded, dataset: ImageDataset, device: torch.device) -> Decoded:
    """Decode a chunk's JPEG files on the GPU (nvJPEG); on the CPU if the GPU can't decode one of them."""
    chunk = decoded.chunk
    try:
        images = io().decode_jpeg(decoded.raw, mode=io().ImageReadMode.RGB, device=device)
    except RuntimeError:
        return replace(dataset, raw=False)[chunk]
    shown = [
        cut(image, dataset.size, dataset.crop, chunk.crops[place] if chunk.crops else None)
        for place, image in enumerate(images)
    ]
    sides = [each.flip(2) if chunk.flips and chunk.flips[place] else each for place, each in enumerate(shown)]
    return replace(decoded, pixels=torch.stack(sides).permute(0, 2, 3, 1), raw=None)


def gpu_decodes(device: torch.device) -> bool:
    """Return whether this torchvision decodes JPEG files on that GPU."""
    if device.type != "cuda":
        return False
    try:
        io().decode_jpeg([io().encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))], device=device)
    except RuntimeError:
        return False
    return True
