"""A data set is described in the catalog, and only its name is anywhere else (see the package's docstring)."""

import ast
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from tests.support.published import Mirror, cifar_archive, cifar_files, ensure, md5, refused, write
from trainer.bench.input_pipeline import SMALL_DATASETS
from trainer.config.flags import DATASETS, PUBLISHED_DATASETS
from trainer.config.recipes import RECIPES
from trainer.data.published import catalog, fetch
from trainer.data.published.catalog import CATALOG, Checksums, Mirrors, PublishedSet, RemoteFile

PACKAGE = ROOT / "trainer" / "data" / "published"


def test_the_flags_the_benchmark_and_the_recipes_name_what_the_catalog_describes() -> None:
    assert list(PUBLISHED_DATASETS) == list(CATALOG)
    assert {*DATASETS} - {"synthetic", "folder"} == {*SMALL_DATASETS} - {"synthetic"} == {*CATALOG}
    assert {recipe.dataset for recipe in RECIPES.values()} <= {*CATALOG}


@pytest.mark.parametrize("name", CATALOG)
def test_an_entry_is_whole_and_no_two_sets_share_a_folder(name: str) -> None:
    described = CATALOG[name]
    assert {*described.checksums.by_file()} == {*described.files}
    assert {"", described.folder} <= {*described.layouts}, "what torchvision has fetched must be found"
    assert [other for other, each in CATALOG.items() if each.folder == described.folder] == [name]
    remote = [{file.name.removesuffix(".gz") for file in mirror.files} for mirror in described.mirrors.known()]
    assert remote and all(each == {*described.files} or each <= {*described.archives} for each in remote)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_catalog_knows_a_set_by_its_name(path: Path) -> None:
    texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert path.stem == "catalog" or texts.isdisjoint(CATALOG)


def made_up(mirror_url: str) -> PublishedSet:
    """A set in CIFAR-10's format, with names of its own."""
    archive = RemoteFile(url=f"{mirror_url}made-up.tar.gz", name="made-up.tar.gz", md5=md5(cifar_archive()))
    return PublishedSet(
        files=CATALOG["cifar10"].files,
        parse=CATALOG["cifar10"].parse,
        folder="made-up",
        layouts=("", "made-up"),
        archives=("made-up.tar.gz",),
        checksums=Checksums(
            algorithm="md5", by_file=lambda: {file: md5(content) for file, content in cifar_files().items()}
        ),
        images=(20, 4),
        mirrors=Mirrors(owner="nobody", known=lambda: [catalog.Mirror(address=mirror_url, files=(archive,))]),
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
    assert "nobody's mirror" in message and f"(2) put it into {tmp_path / 'other'}" in message


@pytest.mark.usefixtures("closed_world")
def test_a_set_without_an_entry_is_never_taken_for_another(tmp_path: Path, mirror: Mirror) -> None:
    with pytest.raises(KeyError, match="emnist"):
        ensure("emnist", tmp_path)
    with pytest.raises(KeyError, match="emnist"):
        fetch.is_published("emnist", cifar_files())
    assert mirror.requests == []
