"""`image.yml`: written by us, read by us and by provisioning."""

from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.image import record
from launcher.image.record import REFERENCE, image_of, place, read_lenient, read_strict
from launcher.inventory.hosts import Host

DIGEST = "1" * 64
MINE = f"mine@sha256:{DIGEST}"
BROKEN = {
    b"": "does not say `ringmaster_image: name@sha256:…`",
    b"- a list": "does not say `ringmaster_image: ",
    b"other: x": "does not say `ringmaster_image: ",
    b"ringmaster_image: 3": "does not say `ringmaster_image: ",
    b"a: b\n- {": r"is not YAML \(line 2: ",
    b"\x00": r"can't be read \(not a text\)",
    b"\xff\xfe\x00": r"can't be read \(not a text\)",
}


@pytest.mark.parametrize("content", [*BROKEN, None, b"base: [1"])
def test_a_record_that_is_broken_or_older_names_no_base(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "image.yml"
    if content is not None:
        path.write_bytes(content)
    assert record.read_base(path) == ("", "")
    record.write(path, {REFERENCE: MINE, "base": "debian:12", "base_digest": "sha256:1"})
    assert record.read_base(path) == ("debian:12", "sha256:1")


def hosts(*settings: dict[str, Any]) -> list[Host]:
    return [Host(name=f"node{number}", address=str(number), settings=each) for number, each in enumerate(settings, 1)]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yml"
    place(path).write_text(f"{REFERENCE}: registry.example/train@sha256:{DIGEST}\n")
    return path


def test_it_lies_beside_the_inventory(tmp_path: Path) -> None:
    assert place(tmp_path / "hosts.yml") == tmp_path / "image.yml"
    assert place(tmp_path) == tmp_path / "image.yml"


def test_what_is_written_is_read_by_us_and_provisioning(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    assert read_lenient(path) == read_strict(path) == ""
    record.write(path, {REFERENCE: "sha256:1", "cuda": "13.2", "requirements": ""})
    assert read_lenient(path) == read_strict(path) == "sha256:1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_one_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image.yml"
    path.write_bytes(content)
    assert read_lenient(path) == ""


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.yml"
    path.mkdir()
    with pytest.raises(RingmasterError, match="can't be recorded"):
        record.write(path, {REFERENCE: "sha256:1"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["image.yml"]


class TestImageOfANode:
    def test_the_record_counts_unless_the_inventory_names_one(self, inventory: Path) -> None:
        assert image_of(inventory, hosts({}, {})) == f"registry.example/train@sha256:{DIGEST}"
        mine = {"image": MINE}
        assert image_of(inventory, hosts(mine, mine)) == MINE

    def test_an_id_names_an_image_too(self, inventory: Path) -> None:
        place(inventory).write_text(f"{REFERENCE}: sha256:{DIGEST}\n")
        assert image_of(inventory, hosts({})) == f"sha256:{DIGEST}"

    TAGS = ("train", "train:v1", "registry.example:5000/train:latest", f"train-sha256:{DIGEST}", f"{MINE}0", MINE[:-1])

    @pytest.mark.parametrize("tag", TAGS)
    @pytest.mark.parametrize("where", ["hosts.yml", "image.yml"])
    def test_a_tag_may_be_moved_and_is_refused_with_its_file(self, inventory: Path, tag: str, where: str) -> None:
        place(inventory).write_text(f"{REFERENCE}: {tag}\n")
        settings = {"image": tag} if where == "hosts.yml" else {}
        with pytest.raises(RingmasterError, match="is not named by digest or ID") as raised:
            image_of(inventory, hosts(settings))
        assert raised.value.exit_code == ExitCode.USAGE
        assert str(inventory.with_name(where)) in str(raised.value) and tag in str(raised.value)

    def test_without_a_record_none_is_named(self, tmp_path: Path) -> None:
        assert image_of(tmp_path / "hosts.yml", hosts({})) == ""

    @pytest.mark.parametrize("second", [{}, {"image": "other@sha256:2"}])
    def test_one_job_has_one_image(self, inventory: Path, second: dict[str, Any]) -> None:
        with pytest.raises(RingmasterError, match="ringmaster_image differs between nodes") as raised:
            image_of(inventory, hosts({"image": MINE}, second))
        assert raised.value.exit_code == ExitCode.USAGE

    @pytest.mark.parametrize(("content", "complaint"), BROKEN.items())
    def test_a_broken_record_is_an_error(self, inventory: Path, content: bytes, complaint: str) -> None:
        place(inventory).write_bytes(content)
        with pytest.raises(RingmasterError, match=f"{complaint}.*: fix it, remove it, or make the image again$"):
            image_of(inventory, hosts({}))
