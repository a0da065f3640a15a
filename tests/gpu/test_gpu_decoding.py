"""JPEG files decoded on the GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from trainer.data.streaming.gpu_decode import gpu_decodes

Run = Callable[..., list[dict[str, Any]]]


def _folder(path: Path) -> Path:
    for part, count in (("train", 12), ("val", 4)):
        for label, shade in (("dark", 40), ("light", 200)):
            (path / part / label).mkdir(parents=True)
            for number in range(count):
                image = torch.randint(shade - 30, shade + 30, (3, 48, 56), dtype=torch.uint8)
                torchvision.io.write_jpeg(image, str(path / part / label / f"{number}.jpg"))
    return path


@pytest.mark.parametrize("decode", ["gpu", "cpu"])
def test_a_folder_is_learned_whichever_decodes(decode: str, trained: Run, tmp_path: Path) -> None:
    assert gpu_decodes(torch.device("cuda", 0)), "torchvision is built with nvJPEG"
    images = _folder(tmp_path / "images")
    flags = ("--dataset", "folder", "--data", str(images), "--image-size", "32", "--workers", "1", "--decode", decode)
    records = trained(*flags, "--model", "fast-cnn", "--epochs", "8", "--batch-size", "8", "--lr", "0.05")
    assert [record for record in records if record["kind"] == "epoch"][-1]["test_accuracy"] > 0.7
