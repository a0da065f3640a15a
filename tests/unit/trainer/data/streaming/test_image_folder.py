from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.config.run_config import parse
from trainer.data.streaming import image_folder
from trainer.errors import UserError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def test_classes_and_files_are_in_order(tmp_path: Path) -> None:
    root = touch(
        tmp_path, "train/dog/b.jpg", "train/dog/a.JPEG", "train/cat/deep/c.png", "val/dog/d.jpg", "train/cat/notes.txt"
    )
    touch(root, "train/cat/._c.png", "train/.cache/x.jpg")  # macOS and programs leave such
    found = image_folder.find(root)
    assert found.classes == ("cat", "dog")
    assert [found.train.name(number) for number in range(len(found.train))] == [
        "cat/deep/c.png",
        "dog/a.JPEG",
        "dog/b.jpg",
    ]
    assert found.train.labels.tolist() == [0, 1, 1]
    assert found.test.labels.tolist() == [1]
    assert Path(found.test.path(0)) == root / "val/dog/d.jpg"


def test_names_keep_every_byte(tmp_path: Path) -> None:
    root = touch(tmp_path, "train/ä b/ü\udcff.jpg", "test/ä b/x.png")
    found = image_folder.find(root)
    assert Path(found.train.path(0)).exists()
    assert found.test.name(0) == "ä b/x.png"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cat/a.jpg"], r"train: No such file or directory; expected: train/<class>/\*\.jpg"),
        (["train/cat/a.jpg"], "val: No such file or directory; expected"),
        (["train/a.jpg", "val/cat/a.jpg"], "no classes with images in .*/train; expected"),
        (["train/cat/a.jpg", "val/cat/a.txt"], "no classes with images in .*/val; expected"),
        (["train/cat/a.jpg", "train/dog/a.gif", "val/cat/a.jpg"], r"no images .* in train/dog; fill or remove"),
        (["train/cat/a.jpg", "valid/cat/a.jpg", "valid/cow/a.jpg", "valid/eel/b.jpg"], r"valid/cow and 1 more is a"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        image_folder.find(touch(tmp_path, *names))
    assert caught.value.exit_code == 2


def test_ranks_with_other_files_are_refused(tmp_path: Path) -> None:
    names = ("train/cat/a.jpg", "train/dog/b.jpg", "val/dog/b.jpg")
    same = [image_folder.find(touch(tmp_path / name, *names)).digest() for name in ("one", "two")]
    other = image_folder.find(touch(tmp_path / "three", "train/cat/a.jpg", "train/dog/c.jpg", "val/dog/b.jpg")).digest()
    image_folder.refuse_differing(same, tmp_path)
    with pytest.raises(UserError, match=r"rank\(s\) 2 see other files") as caught:
        image_folder.refuse_differing([*same, other], tmp_path)
    assert caught.value.exit_code == 2


def moved(names: tuple[str, ...]) -> Callable[[Path], str]:
    return lambda root: image_folder.find(touch(root, *names)).digest()


def test_an_image_of_another_class_is_another_list(tmp_path: Path) -> None:
    one = moved(("train/a/1.jpg", "train/b/2.jpg", "val/a/1.jpg"))(tmp_path / "one")
    other = moved(("train/a/1.jpg", "train/a/2.jpg", "train/b/2.jpg", "val/a/1.jpg"))(tmp_path / "other")
    assert one != other


def test_a_checkpoint_remembers_classes_and_files_apart(tmp_path: Path) -> None:
    identities = [
        image_folder.find(touch(tmp_path / str(number), *names)).identity()
        for number, names in enumerate(
            [
                ("train/a/1.jpg", "train/b/2.jpg", "val/a/1.jpg"),
                ("train/a/1.jpg", "train/b/3.jpg", "val/a/1.jpg"),
                ("train/b/1.jpg", "train/c/2.jpg", "val/b/1.jpg"),
            ]
        )
    ]
    classes = [each.partition("/")[0] for each in identities]
    assert classes[0] == classes[1] != classes[2]
    assert len(set(identities)) == 3


def test_flags(tmp_path: Path) -> None:
    config = parse(["--dataset", "folder", "--data", str(tmp_path)], {})
    data = config.data
    assert (data.image_size, data.workers, data.crop, data.decode) == (224, None, "resized", "auto")
    assert (config.model, config.augmentation.flip) == ("resnet18", "random")
    given = parse(["--dataset", "folder", "--workers", "0", "--flip", "none"], {"RINGMASTER_DATA": str(tmp_path)})
    assert (given.data.workers, given.augmentation.flip, given.data.own_copy) == (0, "none", tmp_path)
    assert parse(["--dataset", "synthetic"], {}).augmentation.flip == "none"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dataset", "folder"], "folder needs your images: --data PATH"),
        (["--dataset", "folder", "--data", ".", "--shift", "2"], "--shift: a folder's images are cropped"),
        (["--workers", "-1"], "--workers: '-1' is not a whole number"),
        (["--workers", "many"], "--workers: 'many' is not a whole number"),
        (["--workers", "1025"], "--workers: '1025' is not a whole number from 0 to 1024"),
        (["--image-size", "7"], "--image-size: '7' is not"),
        (["--image-size", "4097"], "--image-size: '4097' is not a whole number from 8 to 4096"),
    ],
)
def test_flags_that_can_not_be(flags: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse(flags, {})
    assert caught.value.exit_code == 2
