"""Which image the nodes run."""

from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.image.record import REFERENCE, place
from launcher.image.record_required import recorded
from launcher.inventory.hosts import Host


def hosts(*settings: dict[str, Any]) -> list[Host]:
    return [Host(name=f"node{number}", address=str(number), settings=each) for number, each in enumerate(settings, 1)]


DIGEST = "1" * 64
MINE = f"mine@sha256:{DIGEST}"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yml"
    place(path).write_text(f"{REFERENCE}: registry.example/train@sha256:{DIGEST}\n")
    return path


def test_the_record_counts_unless_the_inventory_names_one(inventory: Path) -> None:
    assert recorded(inventory, hosts({}, {})) == f"registry.example/train@sha256:{DIGEST}"
    mine = {"image": MINE}
    assert recorded(inventory, hosts(mine, mine)) == MINE


def test_an_id_names_an_image_too(inventory: Path) -> None:
    place(inventory).write_text(f"{REFERENCE}: sha256:{DIGEST}\n")
    assert recorded(inventory, hosts({})) == f"sha256:{DIGEST}"


TAGS = ("train", "train:v1", "registry.example:5000/train:latest", f"train-sha256:{DIGEST}", f"{MINE}0", MINE[:-1])


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("where", ["hosts.yml", "image.yml"])
def test_a_tag_may_be_moved_and_is_refused_with_where_it_stands(inventory: Path, tag: str, where: str) -> None:
    place(inventory).write_text(f"{REFERENCE}: {tag}\n")
    settings = {"image": tag} if where == "hosts.yml" else {}
    with pytest.raises(RingmasterError, match="is not named by digest or ID") as raised:
        recorded(inventory, hosts(settings))
    assert raised.value.exit_code == ExitCode.USAGE
    assert str(inventory.with_name(where)) in str(raised.value) and tag in str(raised.value)


def test_without_a_record_none_is_named(tmp_path: Path) -> None:
    assert recorded(tmp_path / "hosts.yml", hosts({})) == ""


@pytest.mark.parametrize("second", [{}, {"image": "other@sha256:2"}])
def test_one_job_has_one_image(inventory: Path, second: dict[str, Any]) -> None:
    with pytest.raises(RingmasterError, match="ringmaster_image differs between nodes") as raised:
        recorded(inventory, hosts({"image": MINE}, second))
    assert raised.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("content", [b"", b"- a list", b"other: x", b"ringmaster_image: 3", b"{", b"\xff\xfe\x00"])
def test_a_record_that_says_nothing_is_an_error(inventory: Path, content: bytes) -> None:
    place(inventory).write_bytes(content)
    with pytest.raises(RingmasterError, match="make image writes it"):
        recorded(inventory, hosts({}))
