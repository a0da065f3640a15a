"""A data set is described in the catalog, and only its name is anywhere else (see the package's docstring)."""

import ast
import re
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10, FashionMNIST

from launcher.base.paths import ROOT
from tests.support.published import Mirror, cifar_archive, cifar_files, ensure, refused, sha256, write
from trainer.bench.input_pipeline import SMALL_DATASETS
from trainer.config.flags import DATASETS, PUBLISHED_DATASETS
from trainer.config.recipes import RECIPES
from trainer.data.published import catalog, fetch
from trainer.data.published.catalog import CATALOG, PublishedSet, RemoteFile

PACKAGE = ROOT / "trainer" / "data" / "published"


def test_the_flags_the_benchmark_and_the_recipes_name_what_the_catalog_describes() -> None:
    assert list(PUBLISHED_DATASETS) == list(CATALOG)
    assert {*DATASETS} - {"synthetic", "folder"} == {*SMALL_DATASETS} - {"synthetic"} == {*CATALOG}
    assert {recipe.dataset for recipe in RECIPES.values()} <= {*CATALOG}


@pytest.mark.parametrize("name", CATALOG)
def test_an_entry_is_whole_and_no_two_sets_share_a_folder(name: str) -> None:
    described = CATALOG[name]
    assert {*described.sha256} == {*described.files}
    assert {"", described.folder} <= {*described.layouts}, "what torchvision has fetched must be found"
    assert [other for other, each in CATALOG.items() if each.folder == described.folder] == [name]
    remote = [{file.name.removesuffix(".gz") for file in mirror.files} for mirror in described.mirrors]
    assert remote and all(each == {*described.files} or each <= {*described.archives} for each in remote)


@pytest.mark.parametrize("name", CATALOG)
def test_every_file_is_checked_by_sha256_and_asked_for_over_https_first(name: str) -> None:
    described = CATALOG[name]
    checksums = [*described.sha256.values(), *(file.sha256 for mirror in described.mirrors for file in mirror.files)]
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in checksums)
    assert all(file.url.startswith("https://") for file in described.mirrors[0].files)


def test_what_torchvision_publishes_is_what_is_asked_for() -> None:
    fashion, cifar = CATALOG["fashion-mnist"], CATALOG["cifar10"]
    assert [file.name for file in fashion.mirrors[0].files] == [name for name, _ in FashionMNIST.resources]
    assert {*FashionMNIST.mirrors} <= {mirror.address for mirror in fashion.mirrors}
    assert [file.url for file in cifar.mirrors[0].files] == [CIFAR10.url]
    assert [*cifar.files] == [name for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]]


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_catalog_knows_a_set_by_its_name(path: Path) -> None:
    texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert path.stem == "catalog" or texts.isdisjoint(CATALOG)


def made_up(mirror_url: str) -> PublishedSet:
    """A set in CIFAR-10's format, with names of its own."""
    archive = RemoteFile(url=f"{mirror_url}made-up.tar.gz", name="made-up.tar.gz", sha256=sha256(cifar_archive()))
    return PublishedSet(
        files=CATALOG["cifar10"].files,
        parse=CATALOG["cifar10"].parse,
        folder="made-up",
        layouts=("", "made-up"),
        archives=("made-up.tar.gz",),
        sha256={file: sha256(content) for file, content in cifar_files().items()},
        images=(20, 4),
        mirrors=(catalog.Mirror(address=mirror_url, files=(archive,)),),
        ways_out=("DATA=/path", "put it into {root}"),
    )


@pytest.mark.usefixtures("closed_world")
def test_an_entry_is_all_that_a_new_set_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Mirror({"made-up.tar.gz": cifar_archive()})
    monkeypatch.setitem(CATALOG, "made-up", made_up(server.url))
    assert ensure("made-up", tmp_path / "data") == []
    assert server.requests == ["made-up.tar.gz"]
    assert fetch.is_published("made-up", cifar_files())
    own = write(tmp_path / "own" / "made-up", cifar_files()).parent
    assert ensure("made-up", tmp_path / "data", own) == []
    server.server.shutdown()
    server.server.server_close()
    message = refused("made-up", tmp_path / "other")
    assert "the authors' site" in message and f"(2) put it into {tmp_path / 'other'}" in message


@pytest.mark.usefixtures("closed_world")
def test_a_set_without_an_entry_is_never_taken_for_another(tmp_path: Path, mirror: Mirror) -> None:
    with pytest.raises(KeyError, match="emnist"):
        ensure("emnist", tmp_path)
    with pytest.raises(KeyError, match="emnist"):
        fetch.is_published("emnist", cifar_files())
    assert mirror.requests == []
