from pathlib import Path

import pytest
import torch
import torchvision.io
from torch.nn.functional import interpolate

from tests.support.made_folder import write
from trainer.data.streaming import decode
from trainer.data.streaming.image_folder import Files


@pytest.mark.parametrize("draws", [[0.0, 0.0, 0.0, 0.0], [0.999] * 4, [0.5, 0.1, 0.9, 0.2], [0.3, 0.99, 0.5, 0.99]])
@pytest.mark.parametrize(("height", "width"), [(30, 40), (9, 200), (500, 3), (1, 1)])
def test_random_windows_lie_in_the_image(height: int, width: int, draws: list[float]) -> None:
    for window in (
        decode.resized_window(height, width, draws),
        decode.random_window(height, width, 16, draws),
        decode.middle_window(height, width),
    ):
        top, left, rows, columns = window
        assert 0 <= top <= top + rows <= height
        assert 0 <= left <= left + columns <= width
        assert min(rows, columns) >= 1


def test_resized_windows_have_the_area_and_shape_drawn() -> None:
    assert decode.resized_window(100, 100, [0.0, 0.5, 0.0, 0.0]) == (0, 0, 28, 28)  # 8 % of the area, a square
    assert decode.resized_window(1000, 1000, [0.25, 0.0, 0.0, 0.0])[2:] == (643, 482)  # 31 %, 3 : 4


def test_random_windows_reach_every_place() -> None:
    assert decode.random_window(20, 17, 16, [0, 0, 0.999, 0.999]) == (4, 1, 16, 16)
    assert decode.random_window(10, 17, 16, [0, 0, 0.999, 0.0]) == (0, 0, 10, 10)


def test_the_middle_is_the_usual_resize_and_crop() -> None:
    smooth = interpolate(torch.rand(1, 3, 4, 5, generator=torch.Generator().manual_seed(0)) * 255, size=(256, 320))
    image = smooth[0].to(torch.uint8)
    usual = image[:, 16:240, 48:272]  # the shorter side is 256 already
    assert torch.equal(decode.cut(image, 224, "resized", None), usual)
    small = decode.cut(image, 112, "resized", None)
    resized = interpolate(image[None], size=(128, 160), mode="bilinear", antialias=True)[0, :, 8:120, 24:136]
    assert (small.int() - resized.int()).abs().float().mean() < 1


def test_whatever_the_file_has_comes_as_three_channels_of_bytes(tmp_path: Path) -> None:
    grey = torch.randint(256, (1, 6, 7)).to(torch.uint8)
    torchvision.io.write_jpeg(grey, str(tmp_path / "grey.jpg"))
    torchvision.io.write_png(grey, str(tmp_path / "grey.png"))
    from PIL import Image

    Image.new("RGBA", (7, 6), (10, 20, 30, 40)).save(tmp_path / "alpha.png")
    Image.new("I;16", (7, 6), 0x1234).save(tmp_path / "deep.png")
    for name in ("grey.jpg", "grey.png", "alpha.png", "deep.png"):
        image = decode.decode(str(tmp_path / name))
        assert (image.shape, image.dtype) == ((3, 6, 7), torch.uint8), name
    assert decode.decode(str(tmp_path / "deep.png")).unique().tolist() == [0x12]


def test_names_that_are_not_text_are_read_and_reported(tmp_path: Path) -> None:
    write(tmp_path / "whole.png").rename(tmp_path / "\udcff.png")
    assert decode.decode(str(tmp_path / "\udcff.png")).shape == (3, 20, 24)
    (tmp_path / "\udcfe.png").touch()
    dataset = decode.ImageDataset(files=Files(tmp_path, ["\udcfe.png", "none.png"], [0, 0]), size=16, crop="random")
    found = dataset[decode.Chunk(indices=[0, 1], place=0, batch=2, crops=None, flips=None)]
    assert found.broken == [
        f"{tmp_path}/\\xfe.png: the file is empty",
        f"{tmp_path}/none.png: No such file or directory",
    ]


def test_images_are_mirrored(tmp_path: Path) -> None:
    write(tmp_path / "a.png", height=16, width=16)
    dataset = decode.ImageDataset(files=Files(tmp_path, ["a.png"], [3]), size=16, crop="random")
    whole = [[0.0] * 4] * 2
    found = dataset[decode.Chunk(indices=[0, 0], place=0, batch=2, crops=whole, flips=[False, True])]
    assert found.labels == [3, 3]
    assert torch.equal(found.pixels[0], decode.decode(str(tmp_path / "a.png")).permute(1, 2, 0))
    assert torch.equal(found.pixels[1], found.pixels[0].flip(1))
