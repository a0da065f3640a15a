from pathlib import Path

import pytest

from launcher import image_record
from launcher.errors import RingmasterError


def test_it_lies_beside_the_inventory(tmp_path: Path) -> None:
    assert image_record.place(tmp_path / "hosts.yml") == tmp_path / "image.yml"
    assert image_record.place(tmp_path) == tmp_path / "image.yml"


def test_what_is_written_is_read_by_us_and_provisioning(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    assert image_record.recorded(path) == ""
    image_record.write(path, {image_record.REFERENCE: "sha256:1", "cuda": "13.2", "requirements": ""})
    assert image_record.recorded(path) == "sha256:1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]


@pytest.mark.parametrize("text", ["- a list\n", "a: [\n", "\x00", "other: key\n"])
def test_a_broken_one_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "image.yml"
    path.write_text(text)
    assert image_record.recorded(path) == ""


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    path.mkdir()
    with pytest.raises(RingmasterError, match="can't be recorded"):
        image_record.write(path, {image_record.REFERENCE: "sha256:1"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]
