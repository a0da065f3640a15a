from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.image import record


def test_it_lies_beside_the_inventory(tmp_path: Path) -> None:
    assert record.place(tmp_path / "hosts.yml") == tmp_path / "image.yml"
    assert record.place(tmp_path) == tmp_path / "image.yml"


def test_what_is_written_is_read_by_us_and_provisioning(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    assert record.recorded(path) == ""
    record.write(path, {record.REFERENCE: "sha256:1", "cuda": "13.2", "requirements": ""})
    assert record.recorded(path) == "sha256:1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]


@pytest.mark.parametrize("text", ["- a list\n", "a: [\n", "\x00", "other: key\n"])
def test_a_broken_one_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "image.yml"
    path.write_text(text)
    assert record.recorded(path) == ""


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    path.mkdir()
    with pytest.raises(RingmasterError, match="can't be recorded"):
        record.write(path, {record.REFERENCE: "sha256:1"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]
