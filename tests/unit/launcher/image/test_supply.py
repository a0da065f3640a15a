"""What is done before a job whose nodes lack the image: built, renewed, delivered, or only said."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.image import content, prune, supply
from launcher.image import record as image_record
from launcher.image.content import Wanted, trainer_hash
from launcher.image.labels import TRAINER, ImageFacts
from launcher.image.supply import Remedy, Supply
from tests.support.building_node import Node

PRESENT = ImageFacts(id="sha256:i", architecture="amd64", labels={TRAINER: trainer_hash()})
LAYERS = "ringmaster-packages:1"
PACKAGES = json.dumps({"torch": "2.15.0"})
OLD_LABELS = {
    TRAINER: "older",
    prune.LAYERS: LAYERS,
    "ringmaster.cuda": "12.8",
    "ringmaster.packages": PACKAGES,
    "ringmaster.requirements": "r",
    "org.opencontainers.image.base.name": "debian:bookworm-slim",
    "org.opencontainers.image.base.digest": "sha256:b",
}


class Bench:
    """Two nodes, the record, and what was said and delivered."""

    def __init__(self, top: Path) -> None:
        self.record = top / "image.yml"
        self.nodes = {"node1": Node(), "node2": Node()}
        self.nodes["node2"].name = "node2"
        self.said: list[str] = []
        self.delivered: list[list[str]] = []
        self.code = 0
        self.everyone: list[Any] = []

    def supply(self, *, named: bool = False) -> Supply:
        return Supply(
            record=self.record,
            pins=Path("/pins"),
            named=named,
            everyone=lambda: self.everyone,
            deliver=self._deliver,
            say=self.said.append,
        )

    def find(self, reference: str, *images: ImageFacts | None, cuda: str = "", named: bool = False) -> Remedy | None:
        nodes: Any = self.nodes
        there = dict(zip(nodes, images, strict=True))
        return self.supply(named=named).find_remedy(reference, there, nodes, architecture="amd64", cuda=cuda)

    def bring(self, reference: str, *images: ImageFacts | None, **how: Any) -> str:
        remedy = self.find(reference, *images, **how)
        assert remedy
        return self.supply().bring(remedy)

    def _deliver(self, names: Sequence[str]) -> int:
        self.delivered.append(list(names))
        return self.code

    @property
    def built(self) -> dict[str, list[str]]:
        return {name: node.built for name, node in self.nodes.items()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_without_a_record_one_is_built_on_the_first_node_and_delivered(bench: Bench) -> None:
    reference = bench.bring("", None, None)
    assert bench.built == {"node1": ["packages", "image"], "node2": []}
    assert bench.delivered == [["node1", "node2"]]
    assert reference == image_record.read_strict(bench.record)
    assert bench.said == ["no image is recorded: first, build one on node1, and deliver it to node1, node2"]


def test_what_would_be_done_is_found_out_without_doing_it(bench: Bench) -> None:
    found = bench.find("", None, None)
    assert found is not None
    assert found.notes == ("no image is recorded: make train would build one on node1, and deliver it to node1, node2",)
    bench.nodes["node1"].known[LAYERS] = {}
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    renewed = bench.find("sha256:o", old, None)
    assert renewed is not None and len({id(image) for image in renewed.images.values()}) == 1, "all get the new one"
    assert renewed.images["node1"].labels == {**old.labels, TRAINER: trainer_hash()}, "as it would be"
    found = bench.find("sha256:i", PRESENT, None)
    assert found is not None and found.images == {"node1": PRESENT, "node2": PRESENT}
    assert found.notes == ("node2: the image is not there: make train would deliver it to node2",)
    assert (bench.said, bench.delivered, bench.built) == ([], [], {"node1": [], "node2": []})
    assert not bench.record.exists()


def test_what_a_new_image_will_have_is_known_from_its_lock(bench: Bench) -> None:
    found = bench.find("", None, None, cuda="12")
    assert found is not None
    image = found.images["node2"]
    assert image.expected and not image.foreign and (image.architecture, image.cuda) == ("amd64", "12")
    assert image.architectures == ("compute_70",)
    lock = (ROOT / "requirements" / "trainer-cuda12.txt").read_text()
    assert f"torch=={image.packages['torch']} " in lock and image.packages["numpy"] in lock
    assert image.packages["python"].startswith("3.11") and "pandas" not in image.packages


def test_what_a_base_of_the_users_brings_is_not_known_before(bench: Bench) -> None:
    image_record.write(bench.record, {**image_record.asked(Wanted(base="nvcr.io/x")), "ringmaster_image": "sha256:g"})
    found = bench.find("sha256:g", None, None)
    assert found is not None
    image = found.images["node1"]
    assert image.expected and (image.packages, image.cuda, image.architectures) == ({}, "", ())


def test_what_a_torch_of_the_users_choice_brings_is_not_known_before(bench: Bench) -> None:
    image_record.write(bench.record, {**image_record.asked(Wanted(torch="2.15")), "ringmaster_image": "sha256:g"})
    found = bench.find("sha256:g", None, None, cuda="12")
    assert found is not None
    image = found.images["node1"]
    assert image.expected and (image.packages, image.cuda, image.architectures) == ({}, "", ())
    assert "CUDA" not in found.does, "its CUDA comes with it, and is checked once it is there"


def test_a_node_without_it_gets_it(bench: Bench) -> None:
    assert bench.bring("sha256:i", PRESENT, None) == "sha256:i"
    assert bench.delivered == [["node1", "node2"]] and bench.built == {"node1": [], "node2": []}


def test_an_older_image_gets_our_files_on_the_node_that_has_its_layers(bench: Bench) -> None:
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    bench.record.write_text("ringmaster_image: sha256:o\nasked: {base: '', cuda: '12', requirements: /r.txt}\n")
    bench.nodes["node2"].known[LAYERS] = {}
    reference = bench.bring("sha256:o", old, old)
    assert bench.built == {"node1": [], "node2": ["image"]} and bench.delivered == [["node1", "node2"]]
    made = bench.nodes["node2"].known[content.train_tag(LAYERS)]
    assert made[TRAINER] == trainer_hash() and made["ringmaster.cuda"] == "12.8", "all else is as it was"
    record = yaml.safe_load(bench.record.read_text())
    assert record["ringmaster_image"] == reference and record["trainer"] == trainer_hash()
    assert record["asked"] == {"base": "", "cuda": "12", "requirements": "/r.txt"} and record["requirements"] == "r"


@pytest.mark.parametrize("named", [True, False])
def test_an_older_image_that_can_not_be_renewed_is_used(bench: Bench, named: bool) -> None:
    if named:  # the inventory's own image is nobody's to replace
        bench.nodes["node1"].known[LAYERS] = {}
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    assert bench.find("sha256:o", old, old, named=named) is None
    assert (bench.said, bench.delivered, bench.built) == ([], [], {"node1": [], "node2": []})


def test_an_image_that_the_inventory_names_is_fetched_and_never_built(bench: Bench) -> None:
    found = bench.find("host/x@sha256:1", None, None, named=True)
    assert found is not None and found.images["node1"].expected, "nobody knows yet what is in it"
    assert bench.bring("host/x@sha256:1", None, None, named=True) == "host/x@sha256:1"
    assert bench.delivered == [["node1", "node2"]] and bench.built == {"node1": [], "node2": []}


@pytest.mark.parametrize("readable", [True, False])
def test_another_node_that_has_it_hands_it_on(bench: Bench, monkeypatch: pytest.MonkeyPatch, readable: bool) -> None:
    other = Node()
    shown = {"Id": "sha256:i", "Architecture": "amd64", "Config": {"Labels": OLD_LABELS}}
    other.inspected = json.dumps(shown) if readable else "what?"
    closed: list[str] = []
    monkeypatch.setattr(other, "close", lambda: closed.append("node3"), raising=False)
    monkeypatch.setattr(supply, "open_all", lambda hosts, pins: ({host.name: other for host in hosts}, {}))
    over_ssh = SimpleNamespace(over_ssh=True)
    bench.everyone = [SimpleNamespace(name=name, ssh=over_ssh) for name in ("node1", "node2", "node3")]
    found = bench.find("sha256:i", None, None)
    assert found is not None
    assert found.images["node2"].expected and bool(found.images["node2"].packages) == readable
    assert bench.supply().bring(found) == "sha256:i"
    assert bench.delivered == [["node1", "node2", "node3"]] and closed == ["node3"]


def test_an_image_that_is_gone_is_built_as_it_was(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text("einops\n")
    wanted = Wanted(cuda="13", requirements=b"einops\n", requirements_path=str(file))
    asked = {**image_record.asked(wanted), "ringmaster_image": "sha256:g", "requirements": wanted.requirements_hash}
    image_record.write(bench.record, asked)
    bench.bring("sha256:g", None, None)
    assert bench.built["node1"] == ["packages", "requirements", "image"]
    file.write_text("other\n")
    image_record.write(bench.record, asked)
    with pytest.raises(RingmasterError, match="is gone or has changed: make image REQUIREMENTS=<file>") as raised:
        bench.bring("sha256:g", None, None)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_what_the_record_does_not_say_of_a_lost_image_is_said(bench: Bench) -> None:
    """Records had no `asked` once; what the image was built on and for is no request, and is not taken for one."""
    older = {"ringmaster_image": "sha256:g", "base": "debian:12", "cuda": "12.8", "requirements": ""}
    image_record.write(bench.record, older)
    found = bench.find("sha256:g", None, None)
    assert found is not None and found.notes[1:] == (
        f"{bench.record} does not say which BASE and CUDA the image was asked for with (that image was built on "
        "debian:12 for CUDA 12.8); the new one is built as if none had been given: make image BASE=… CUDA=… builds "
        "another",
    )
    bench.bring("sha256:g", None, None)
    assert bench.said[1:] == list(found.notes[1:])
    assert any("--build-arg=LOCK=trainer.txt" in words for words in bench.nodes["node1"].streamed), "nothing is guessed"
    again = bench.find("sha256:g", None, None)
    assert again is not None and again.warnings == (), "now it is recorded"


@pytest.mark.parametrize(("cuda", "lock"), [("12", "trainer-cuda12.txt"), ("", "trainer.txt")])
def test_older_drivers_get_an_older_cuda(bench: Bench, cuda: str, lock: str) -> None:
    with pytest.raises(RingmasterError) if cuda else nullcontext():  # the fake's PyTorch is for 13.2
        bench.bring("", None, None, cuda=cuda)
    assert any(f"--build-arg=LOCK={lock}" in words for words in bench.nodes["node1"].streamed)
    assert ("for CUDA 12, which these drivers know" in bench.said[0]) == bool(cuda)


@pytest.mark.parametrize(
    ("code", "message", "exit_code"),
    [(5, "nothing was started", ExitCode.NOT_STARTED), (130, "goes on there", ExitCode.INTERRUPTED)],
)
def test_a_delivery_that_fails_starts_nothing(bench: Bench, code: int, message: str, exit_code: ExitCode) -> None:
    bench.code = code
    with pytest.raises(RingmasterError, match=message) as raised:
        bench.bring("sha256:i", PRESENT, None)
    assert raised.value.exit_code == exit_code


def test_ctrl_c_during_the_build_records_nothing(bench: Bench) -> None:
    bench.nodes["node1"].interrupted = True
    with pytest.raises(RingmasterError, match="stopped; no image was recorded") as raised:
        bench.bring("", None, None)
    assert raised.value.exit_code == ExitCode.INTERRUPTED
    assert not bench.record.exists() and bench.delivered == []


def test_a_node_that_can_not_build_refuses_the_job(bench: Bench) -> None:
    bench.nodes["node1"].free_kb = 9_000_000
    with pytest.raises(RingmasterError, match="building needs 16 GB") as raised:
        bench.bring("", None, None)
    assert raised.value.exit_code == ExitCode.NOT_STARTED and bench.delivered == []
