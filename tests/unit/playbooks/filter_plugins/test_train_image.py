"""Which nodes lack the training image, which node hands it on, and the lines about it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.ringmaster.image.names import PORT
from train_image import (
    image_difference,
    image_plan,
    image_problem,
    image_summary,
    new_delivery,
    recorded_cuda,
    recorded_image,
)

from launcher.base.paths import ROOT

ID = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
WANTED = f"registry.example/train@{OTHER}"


def node(image: str | None = None, *, reference: str = WANTED, digests: tuple[str, ...] = ()) -> dict[str, Any]:
    known = {"reference": reference, "id": image, "digests": list(digests), "size_mb": 3000} if image else None
    return {"ansible_facts": {"ringmaster": {"image": known}}}


@pytest.mark.parametrize(
    "reference",
    ["", ID, WANTED, f"127.0.0.1:5870/ringmaster/train@{ID}", f"nvcr.io/nvidia/pytorch:25.01-py3@{ID}", f"train@{ID}"],
)
def test_what_is_named_by_digest_is_fine(reference: str) -> None:
    assert image_problem(reference) == ""


@pytest.mark.parametrize("reference", ["debian", "debian:12", "nvcr.io:443/a/b:1", ID[:-1], f"a@{ID}0", f"a b@{ID}"])
def test_anything_else_is_refused_and_how_to_find_the_digest_is_said(reference: str) -> None:
    assert f"'{reference}' names no digest" in image_problem(reference)
    assert "`docker pull " in image_problem(reference)


def test_the_record_says_which_image(tmp_path: Path) -> None:
    record = tmp_path / "image.yml"
    assert recorded_image(str(record)) == ""
    for text, wanted in (("", ""), ("# none\n", ""), ("other: 1\n", ""), (f"ringmaster_image: {WANTED}\n", WANTED)):
        record.write_text(text)
        assert recorded_image(str(record)) == wanted


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"hello\n", "does not say `ringmaster_image"),
        (b"- a\n", "does not say"),
        (b"ringmaster_image: [1]\n", "does not say"),
        (b"a: b: c\n", "is not YAML (line 1: mapping values"),
        (b"a: 1\n\tb: 2\n", "is not YAML (line 2: "),
        (b"\xff\xfe\xff", "can't be read (not a text)"),
        (b"a: \x07\n", "can't be read (not a text)"),
    ],
)
def test_a_broken_record_is_one_line_that_names_it(tmp_path: Path, text: bytes, what: str) -> None:
    record = tmp_path / "image.yml"
    record.write_bytes(text)
    problem = image_problem(recorded_image(str(record)))
    assert problem.startswith(f"the image's record {record} {what}")
    assert problem.endswith(": fix it, remove it, or make the image again")
    assert len(problem.splitlines()) == 1


def test_a_record_that_is_a_folder_is_said(tmp_path: Path) -> None:
    assert f"{tmp_path} can't be read (Is a directory)" in image_problem(recorded_image(str(tmp_path)))


def test_the_mesh_lets_through_what_the_delivery_uses() -> None:
    settings = yaml.safe_load((ROOT / "playbooks/roles/ssh_mesh/vars/main.yml").read_text())
    assert settings["__ssh_mesh_tunnel_port"] == PORT


def test_the_first_node_that_has_it_hands_it_on() -> None:
    nodes = {"node1": node(), "node2": node(ID), "node3": node(ID), "node4": node()}
    plan = image_plan(nodes, nodes, WANTED)
    assert (plan["source"], plan["missing"]) == ("node2", ["node1", "node4"])


def test_each_node_gets_it_from_the_one_before_and_falls_back_on_all_before_that() -> None:
    nodes = {"node1": node(), "node2": node(ID), "node3": node(), "node4": node()}
    assert image_plan(nodes, nodes, WANTED)["before"] == {
        "node1": ["node2"],
        "node3": ["node1", "node2"],
        "node4": ["node3", "node1", "node2"],
    }
    none = {"node1": node(), "node2": node()}
    assert image_plan(none, none, WANTED)["before"] == {"node2": ["node1"]}


def test_where_nobody_has_it_the_first_node_gets_it() -> None:
    nodes = {"node1": node(), "node2": node()}
    plan = image_plan(nodes, nodes, WANTED)
    assert (plan["source"], plan["missing"]) == ("node1", ["node1", "node2"])


def test_a_node_that_failed_is_left_out() -> None:
    nodes = {"node1": node(ID), "node2": node()}
    assert image_plan(nodes, ["node2"], WANTED) == {"source": "node2", "missing": ["node2"], "before": {}}


def test_another_image_than_the_one_wanted_does_not_count() -> None:
    nodes = {"node1": node(ID, reference=f"train@{ID}")}
    assert image_plan(nodes, nodes, WANTED)["missing"] == ["node1"]


def test_what_this_run_has_brought_counts() -> None:
    brought = node()
    brought["ansible_facts"]["ringmaster_image"] = {"reference": WANTED, "id": ID, "digests": [], "size_mb": 1}
    assert image_plan({"node1": brought}, ["node1"], WANTED)["missing"] == []


def test_without_an_image_nothing_is_missing() -> None:
    nodes = {"node1": node(), "node2": {}}
    assert image_plan(nodes, nodes, "")["missing"] == []


def test_equal_images_are_one_id_or_one_digest() -> None:
    same = {"node1": node(ID), "node2": node(ID)}
    mixed = {"node1": node(ID, digests=(WANTED,)), "node2": node(OTHER, digests=(WANTED, "x"))}
    assert differences(same) == differences(mixed) == {"node1": "", "node2": ""}


def differences(nodes: dict[str, Any], reference: str = WANTED) -> dict[str, str]:
    return {name: image_difference(nodes, nodes, reference, name) for name in nodes}


def test_a_node_without_the_image_is_the_only_one_that_fails() -> None:
    found = differences({"node1": node(), "node2": node(ID), "node3": node(ID)})
    assert found.pop("node1").startswith("the image is not there: `make provision")
    assert found == {"node2": "", "node3": ""}
    assert all(differences({"node1": node(), "node2": node()}).values())


def test_the_node_whose_image_most_do_not_have_fails() -> None:
    found = differences({"node1": node(OTHER), "node2": node(ID), "node3": node(ID)})
    assert "(sha256:bbbbbbbbbbbb) is not node2's (sha256:aaaaaaaaaaaa): remove it here" in found.pop("node1")
    assert found == {"node2": "", "node3": ""}


def test_no_image_is_fine_and_a_bad_name_fails_everywhere() -> None:
    assert differences({"node1": node()}, "") == {"node1": ""}
    assert "names no digest" in differences({"node1": node(ID)}, "debian:12")["node1"]


def test_the_summary_says_who_took_how_long() -> None:
    source = {**node(ID), "train_image_served": {"pulled": True}}
    fetched = {**node(), "train_image_fetched": {"took_s": 12.4, "moved": ["node9: timed out"]}}
    had = {**node(ID), "train_image_fetched": {"skipped": True}}
    nodes = {"node1": source, "node2": fetched, "node3": had}
    assert image_summary(nodes, nodes, "node1", WANTED) == (
        "sha256:aaaaaaaaaaaa (3.0 GB): node1 pulled it, node2 in 12 s, node2 went on without node9: timed out"
    )


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        (f"ringmaster_image: {WANTED}\ncuda: '12.8'\n", "12.8"),
        (f"ringmaster_image: {WANTED}\n", ""),
        ("ringmaster_image: other\ncuda: '12.8'\n", ""),
        ("- 1\n", ""),
        ("a: [\n", ""),
        (None, ""),
    ],
)
def test_the_cuda_of_the_recorded_image_and_of_no_other(tmp_path: Path, text: str | None, cuda: str) -> None:
    path = tmp_path / "image.yml"
    if text is not None:
        path.write_text(text)
    assert recorded_cuda(str(path), WANTED) == cuda
    assert recorded_cuda(str(path), "") == ""


def test_no_two_deliveries_are_the_same() -> None:
    one, other = new_delivery(), new_delivery()
    assert one["id"] != other["id"]
    assert " on " in one["by"] and one["since"] <= other["since"]
