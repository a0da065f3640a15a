"""Which nodes miss the training image, which hands it on, and what is said of it."""

from typing import Any

import pytest
from train_image import image_difference, image_plan, image_problem, image_summary

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


def test_the_first_node_that_has_it_hands_it_on() -> None:
    nodes = {"node1": node(), "node2": node(ID), "node3": node(ID), "node4": node()}
    assert image_plan(nodes, nodes, WANTED) == {"source": "node2", "missing": ["node1", "node4"]}


def test_where_nobody_has_it_the_first_node_gets_it() -> None:
    nodes = {"node1": node(), "node2": node()}
    assert image_plan(nodes, nodes, WANTED) == {"source": "node1", "missing": ["node1", "node2"]}


def test_a_node_that_failed_is_left_out() -> None:
    nodes = {"node1": node(ID), "node2": node()}
    assert image_plan(nodes, ["node2"], WANTED) == {"source": "node2", "missing": ["node2"]}


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
    assert image_difference({"node1": node(ID), "node2": node(ID)}, ["node1", "node2"], WANTED) == ""
    mixed = {"node1": node(ID, digests=(WANTED,)), "node2": node(OTHER, digests=(WANTED, "x"))}
    assert image_difference(mixed, mixed, WANTED) == ""


def test_different_or_missing_images_are_named() -> None:
    different = {"node1": node(ID), "node2": node(OTHER)}
    assert "node2 sha256:bbbb" in image_difference(different, different, WANTED)
    missing = {"node1": node(ID), "node2": node()}
    assert image_difference(missing, missing, WANTED).startswith("node2: the image is not there: `make provision")


def test_the_summary_says_who_took_how_long() -> None:
    source = {**node(ID), "train_image_served": {"pulled": True}}
    fetched = {**node(), "train_image_fetched": {"took_s": 12.4}}
    had = {**node(ID), "train_image_fetched": {"skipped": True}}
    nodes = {"node1": source, "node2": fetched, "node3": had}
    assert image_summary(nodes, nodes, "node1", WANTED) == (
        "sha256:aaaaaaaaaaaa (3.0 GB): node1 pulled it, node2 in 12 s"
    )
