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
from launcher.image import content, prune, supply
from launcher.image import record as image_record
from launcher.image.content import Wanted, trainer_hash
from launcher.image.labels import TRAINER, ImageFacts
from launcher.image.supply import Supply
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

    def bring(self, reference: str, *images: ImageFacts | None, cuda: str = "", **settings: Any) -> Any:
        made = Supply(
            record=self.record,
            pins=Path("/pins"),
            everyone=lambda: self.everyone,
            deliver=self._deliver,
            say=self.said.append,
            **{"named": False, **settings},
        )
        nodes: Any = self.nodes
        return made.bring(reference, dict(zip(nodes, images, strict=True)), nodes, cuda=cuda)

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
    brought = bench.bring("", None, None)
    assert bench.built == {"node1": ["packages", "image"], "node2": []}
    assert bench.delivered == [["node1", "node2"]]
    assert brought.reference == image_record.read_strict(bench.record) and brought.assumed is None
    assert bench.said == ["no image is recorded: first, build one on node1, and deliver it to node1, node2"]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(bench: Bench) -> None:
    brought = bench.bring("", None, None, dry_run=True)
    assert bench.said == ["no image is recorded: make train would build one on node1, and deliver it to node1, node2"]
    assert brought.assumed.labels == {TRAINER: trainer_hash()}
    bench.nodes["node1"].known[LAYERS] = {}
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    renewed = bench.bring("sha256:o", old, None, dry_run=True).assumed
    assert renewed and renewed.labels == {**old.labels, TRAINER: trainer_hash()}, "as it would be"
    assert bench.bring("sha256:i", PRESENT, None, dry_run=True).reference == "sha256:i"
    assert "node2: the image is not there: make train would deliver it to node2" in bench.said
    assert bench.delivered == [] and bench.built == {"node1": [], "node2": []} and not bench.record.exists()


def test_a_node_without_it_gets_it(bench: Bench) -> None:
    brought = bench.bring("sha256:i", PRESENT, None)
    assert brought.reference == "sha256:i" and brought.assumed is None, "what the nodes have is looked at, not assumed"
    assert bench.delivered == [["node1", "node2"]] and bench.built == {"node1": [], "node2": []}


def test_an_older_image_gets_our_files_on_the_node_that_has_its_layers(bench: Bench) -> None:
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    bench.record.write_text("ringmaster_image: sha256:o\nasked: {base: '', cuda: '12', requirements: /r.txt}\n")
    bench.nodes["node2"].known[LAYERS] = {}
    brought = bench.bring("sha256:o", old, old)
    assert bench.built == {"node1": [], "node2": ["image"]} and bench.delivered == [["node1", "node2"]]
    made = bench.nodes["node2"].known[content.train_tag(LAYERS)]
    assert made[TRAINER] == trainer_hash() and made["ringmaster.cuda"] == "12.8", "all else is as it was"
    record = yaml.safe_load(bench.record.read_text())
    assert record["ringmaster_image"] == brought.reference and record["trainer"] == trainer_hash()
    assert record["asked"] == {"base": "", "cuda": "12", "requirements": "/r.txt"} and record["requirements"] == "r"


@pytest.mark.parametrize("named", [True, False])
def test_an_older_image_that_can_not_be_renewed_is_used(bench: Bench, named: bool) -> None:
    if named:  # the inventory's own image is nobody's to replace
        bench.nodes["node1"].known[LAYERS] = {}
    old = ImageFacts(id="sha256:o", architecture="amd64", labels=OLD_LABELS)
    assert bench.bring("sha256:o", old, old, named=named) is None
    assert (bench.said, bench.delivered, bench.built) == ([], [], {"node1": [], "node2": []})


def test_an_image_that_the_inventory_names_is_fetched_and_never_built(bench: Bench) -> None:
    assert bench.bring("host/x@sha256:1", None, None, named=True).reference == "host/x@sha256:1"
    assert bench.delivered == [["node1", "node2"]] and bench.built == {"node1": [], "node2": []}


def test_another_node_that_has_it_hands_it_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Node()
    closed: list[str] = []
    monkeypatch.setattr(other, "close", lambda: closed.append("node3"), raising=False)
    monkeypatch.setattr(supply, "open_all", lambda hosts, pins: ({host.name: other for host in hosts}, {}))
    over_ssh = SimpleNamespace(over_ssh=True)
    bench.everyone = [SimpleNamespace(name=name, ssh=over_ssh) for name in ("node1", "node2", "node3")]
    assert bench.bring("sha256:i", None, None).reference == "sha256:i"
    assert bench.delivered == [["node1", "node2", "node3"]] and closed == ["node3"]
    assert other.ran[-1][3:] == ["image", "inspect", "--format", "{{.Id}}", "sha256:i"]


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
