import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.base import caller
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.commands import image, provision
from launcher.commands.image import ImageOptions
from launcher.commands.inventory import Inventory
from launcher.image import base_image, content, prune
from launcher.image import record as image_record
from launcher.image.builder import Builder
from launcher.image.content import Wanted
from tests.support.building_node import Node


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    made = Node()

    @contextmanager
    def connected(hosts: Sequence[Any], pins: Path) -> Iterator[Mapping[str, Node]]:
        assert [host.name for host in hosts] == ["a"] and pins == tmp_path / "known_hosts"
        yield {"a": made}

    def deliver(verb: provision.Verb, options: provision.Options, *, debug: bool, inventory: Inventory) -> int:
        assert inventory.hosts, "opened once: its passwords go with it"
        made.streamed.append(["deliver", options.tags])
        return ExitCode.SUCCEEDED

    monkeypatch.setattr(image, "connected", connected)
    monkeypatch.setattr(provision, "run", deliver)
    monkeypatch.setattr("shutil.which", lambda name: None)
    return made


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {ansible_host: 10.0.0.1}, b: {ansible_host: 10.0.0.2}}}\n")
    return str(path)


def test_an_image_is_built_recorded_and_delivered_and_then_unchanged(
    node: Node, hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image.run(ImageOptions(inventory=hosts)) == ExitCode.SUCCEEDED
    assert node.built == ["packages", "image"] and node.streamed[-1] == ["deliver", "train_image"]
    record = Path(hosts).with_name("image.yml")
    tag = next(name for name in node.known if name.startswith("ringmaster-train:"))
    assert image_record.read_lenient(record) == f"id of {tag}"
    labels = node.known[tag]
    assert labels["ringmaster.trainer"] == content.trainer_hash() and labels["ringmaster.cuda"] == "13.2"
    assert labels["ringmaster.architectures"] == "sm_75 sm_80"
    assert json.loads(labels["ringmaster.packages"]) == {"torch": "2.15.0"} and labels["ringmaster.requirements"] == ""
    assert labels[prune.LAYERS] in node.known
    assert labels["org.opencontainers.image.base.digest"] == "sha256:debian:bookworm-slim"
    before = record.read_text()
    assert image.run(ImageOptions(inventory=hosts)) == ExitCode.SUCCEEDED
    assert node.built == ["packages", "image"] and record.read_text() == before
    assert "unchanged" in capsys.readouterr().out


@pytest.mark.parametrize(("security", "shared"), [([], True), (["name=seccomp,profile=x", "name=userns"], False)])
def test_an_engine_that_maps_users_builds_in_a_network_of_its_own(
    node: Node, hosts: str, security: list[str], shared: bool
) -> None:
    node.security = security
    image.run(ImageOptions(inventory=hosts))
    builds = [words for words in node.streamed if "build" in words]
    assert builds and all(("--network=host" in words) == shared for words in builds)


def test_a_base_whose_name_has_moved_is_told_with_the_way_back(
    node: Node, hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    then, now = (f"sha256:{digit * 64}" for digit in "12")
    for digest in (then, then, now):
        node.digests = [f"127.0.0.1:5870/mine@sha256:{'3' * 64}", f"localhost:5000/debian@{digest}"]
        node.known = {name: labels for name, labels in node.known.items() if not name.startswith(content.TRAIN)}
        capsys.readouterr()
        assert image.run(ImageOptions(inventory=hosts, base="localhost:5000/debian:12")) == ExitCode.SUCCEEDED
        said = capsys.readouterr().out
        assert ("has another digest" in said) is (digest == now)
    assert (
        f"localhost:5000/debian:12 has another digest ({now}) than at the last build ({then}); "
        f"BASE=localhost:5000/debian@{then} builds on that one again\n"
    ) in said


@pytest.mark.parametrize(
    "base", ["debian", "debian@sha256:" + "1" * 64, "localhost:5000/a/debian:12@sha256:" + "1" * 64]
)
def test_a_base_may_be_named_by_its_digest(node: Node, hosts: str, base: str) -> None:
    image.run(ImageOptions(inventory=hosts, base=base))
    assert f"--build-arg=BASE={base}" in node.streamed[1]
    assert ["docker", "pull", base] in node.streamed


def test_requirements_are_a_layer_of_their_own(node: Node, hosts: str, tmp_path: Path) -> None:
    image.run(ImageOptions(inventory=hosts))
    file = tmp_path / "requirements.txt"
    file.write_text("einops\n")
    image.run(ImageOptions(inventory=hosts, requirements=str(file)))
    assert node.built == ["packages", "image", "requirements", "image"]
    wanted = Wanted(requirements=b"einops\n")
    newest = [labels for name, labels in node.known.items() if name.startswith("ringmaster-train:")][-1]
    assert newest["ringmaster.requirements"] == wanted.requirements_hash


def test_the_build_uses_the_nodes_certificates_and_proxies_without_keeping_them(node: Node, hosts: str) -> None:
    image.run(ImageOptions(inventory=hosts, base="example/base:1"))
    words = next(words for words in node.streamed if "--target=packages" in words)
    assert all("--network=host" in words for words in node.streamed if "build" in words)
    assert "--secret=id=ca,src=/etc/ssl/certs/ca-certificates.crt" in words
    assert "--build-arg=https_proxy" in words  # without a value: taken from the node's environment, if it has one
    assert "--build-arg=BASE=example/base:1" in words and "--build-arg=LOCK=trainer.txt" in words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "19.03.1"}, "too old"),
        ({"client": "27.3.1"}, "install the package docker-buildx"),
        ({"free_kb": 9_000_000}, "building needs 16 GB"),
        ({"registry": False}, "this machine has no mmdebstrap"),
    ],
)
def test_a_node_that_can_not_build_is_reported_and_nothing_is_recorded(
    node: Node, hosts: str, change: dict[str, Any], message: str
) -> None:
    for name, value in change.items():
        setattr(node, name, value)
    with pytest.raises(RingmasterError, match=message) as raised:
        image.run(ImageOptions(inventory=hosts))
    assert raised.value.exit_code == ExitCode.NOT_STARTED and not Path(hosts).with_name("image.yml").exists()


def test_ctrl_c_ends_the_build_on_the_node(node: Node, hosts: str) -> None:
    node.interrupted = True
    with pytest.raises(RingmasterError, match="no image was recorded") as raised:
        image.run(ImageOptions(inventory=hosts))
    assert raised.value.exit_code == ExitCode.INTERRUPTED and ["kill", "4711"] in node.ran
    assert not Path(hosts).with_name("image.yml").exists()


def test_our_own_base_is_not_built_twice(node: Node) -> None:
    node.known[content.base_tag("amd64")] = {}
    builder = Builder(cast(Any, node))
    assert base_image.provide(builder, "").name == content.base_tag("amd64") and not node.streamed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuda": "11"}, "CUDA=11: must be one of 12, 13"),
        ({"base": "--privileged"}, "BASE=--privileged"),
        ({"requirements": "/nowhere/r.txt"}, "REQUIREMENTS=/nowhere/r.txt: No such file"),
        ({"inventory": str(ROOT / "inventory" / "local.yml")}, "is this machine itself"),
    ],
)
def test_wrong_usage_touches_nothing(node: Node, hosts: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(RingmasterError) as raised:
        image.run(ImageOptions(**{"inventory": hosts, **options}))
    assert message in str(raised.value) and raised.value.exit_code == ExitCode.USAGE and not node.ran


def test_an_inventory_that_names_an_image_is_refused(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {ansible_host: 10.0.0.1}}, vars: {ringmaster_image: 'x@sha256:1'}}\n")
    with pytest.raises(RingmasterError, match="take that setting out"):
        image.run(ImageOptions(inventory=str(path)))
    assert not node.ran


def test_relative_requirements_are_in_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "folder", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.txt").write_text("einops\n")
    for name in ("mine.txt", "~/mine.txt"):
        wanted = image.wanted_image(image.ImageOptions(requirements=name))
        assert (wanted.requirements, wanted.requirements_path) == (b"einops\n", str(tmp_path / "mine.txt"))
    with pytest.raises(RingmasterError, match=f"No such file or directory in {tmp_path}"):
        image.wanted_image(image.ImageOptions(requirements="pyproject.toml"))


class TestATorchOfTheUsersChoice:
    def test_is_built_recorded_and_said_to_be_theirs(self, node: Node, hosts: str) -> None:
        assert image.run(ImageOptions(inventory=hosts, torch="2.15")) == ExitCode.SUCCEEDED
        words = next(words for words in node.streamed if "--target=packages" in words)
        assert "--build-arg=LOCK=chosen.in" in words
        newest = [labels for name, labels in node.known.items() if name.startswith("ringmaster-train:")][-1]
        assert newest["ringmaster.torch"] == "2.15"
        record = Path(hosts).with_name("image.yml")
        assert image_record.wanted_again(record) == Wanted(torch="2.15")
        assert image.run(ImageOptions(inventory=hosts)) == ExitCode.SUCCEEDED
        assert image_record.wanted_again(record) == Wanted(), "without TORCH, the lock's is another image"
        assert node.built.count("packages") == 2

    @pytest.mark.parametrize("version", ["2", "latest", "==2.9", "2.9 ", "2.9;x", "2.9.1.1", "2.٩", "2.9+cu126"])
    def test_is_a_version(self, version: str) -> None:
        with pytest.raises(RingmasterError, match=r"^TORCH=.*must be a version, such as 2\.9"):
            image.wanted_image(ImageOptions(torch=version))
        with pytest.raises(RingmasterError, match=r"^TORCH=1\.13: its torchrun is too old"):
            image.wanted_image(ImageOptions(torch="1.13"))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"torch": "2.1"}, r"TORCH=2\.1: debian:bookworm-slim brings torch 2\.15\.0 of its own"),
            (
                {"torch": "2.15.0", "cuda": "12"},
                r"CUDA=12: in this node's package index, torch 2\.15\.0 is made for CUDA",
            ),
        ],
    )
    def test_must_be_what_was_installed(self, node: Node, hosts: str, options: dict[str, str], message: str) -> None:
        with pytest.raises(RingmasterError, match=message):
            image.run(ImageOptions(inventory=hosts, **options))
        assert not Path(hosts).with_name("image.yml").exists()
