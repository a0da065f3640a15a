"""What travels of a user's data, and what is remembered of it."""

import os
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.cluster.transfer import data as data_tree
from launcher.cluster.transfer import file_tree
from launcher.cluster.transfer.file_tree import FileTree
from launcher.on_node.tree_store import parse


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data_tree, "_SETTLED_S", -1.0)
    return tmp_path / "cache/ringmaster/hashes.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of files, all of the same time."""
    folder = tmp_path / "set"
    for name in ("a", "sub/b", ".git/kept", "sub/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        os.utime(folder / name, (1, 1))
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the names of all files that are read from now on."""
    read: list[str] = []
    hashed = data_tree.hashed_entry
    monkeypatch.setattr(
        data_tree, "hashed_entry", lambda root, name, pace: [read.append(name), hashed(root, name, pace)][1]
    )
    return read


def list_data(path: Path) -> FileTree:
    return data_tree.list_data(path, lambda text: None)


def names(tree: FileTree) -> list[str]:
    return [entry.path for entry in tree.entries]


def test_every_file_under_its_own_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = list_data(data)
    assert names(tree) == ["set/.git/kept", "set/a", "set/empty", "set/sub/b", "set/sub/x.pyc"]
    assert (tree.files, tree.root) == (4, data.parent)
    assert parse(tree.manifest) == tree.entries
    assert names(list_data(data / "a")) == ["a"]
    monkeypatch.chdir(data / "sub")
    assert list_data(Path("..")).hash == list_data(Path("../../set")).hash == tree.hash
    assert names(list_data(Path())) == ["sub/b", "sub/x.pyc"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path, data: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/c").write_text("c")
    (data / "other").symlink_to(tmp_path / "other")
    (data / "sub/up").symlink_to(data)
    (data / "broken").symlink_to("nowhere")
    (data / "circle").symlink_to("circle")
    (data.parent / "link").symlink_to(data)
    tree = list_data(data.parent / "link")
    assert {"link/other/c", "link/a"} < set(names(tree))
    assert not any("up" in name or entry.link for name, entry in zip(names(tree), tree.entries, strict=True))
    assert len(tree.warnings) == 3


def test_no_data_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "void/deep").mkdir(parents=True)
    for path, why in ((tmp_path / "none", "no such"), (tmp_path / "void", "no files"), (Path("/"), "no such")):
        with pytest.raises(RingmasterError, match=f"DATA: .*{why}"):
            list_data(path)


def test_a_file_is_read_once_as_long_as_it_is_the_same(data: Path, read: list[str]) -> None:
    before = list_data(data)
    assert len(read) == 4
    read.clear()
    assert list_data(data) == before
    assert read == []
    (data / "a").write_text("A")  # of the same size, at another time
    os.utime(data / "a", (2, 2))
    (data / "new").write_text("b")
    os.utime(data / "new", (1, 1))
    (data / "new").replace(data / "sub/b")  # another file with the same time
    (data / ".git/kept").chmod(0o755)
    after = list_data(data)
    assert read == ["set/.git/kept", "set/a", "set/sub/b"], "a new mode is a change like any other"
    assert after.hash != before.hash
    assert {entry.path for entry in after.entries if entry.mode == 0o755} == {"set/.git/kept"}


def test_a_change_that_kept_the_time_is_seen(data: Path, read: list[str]) -> None:
    """As `cp -p`, `rsync -t --inplace` and `touch -r` leave it: size, time and inode are what they were."""
    before = list_data(data)
    read.clear()
    was = (data / "a").stat()
    (data / "a").write_text("A")
    os.utime(data / "a", ns=(was.st_atime_ns, was.st_mtime_ns))
    now = (data / "a").stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (was.st_size, was.st_mtime_ns, was.st_ino)
    assert list_data(data).hash != before.hash
    assert read == ["set/a"]


def test_a_change_that_kept_the_time_is_seen_while_the_file_is_read(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, changes = data / "a", iter(["A"])
    was = path.stat()

    class Digest:
        """A digest during whose computing the file changes, once."""

        def __init__(self) -> None:
            self.data = b""

        def update(self, data: bytes) -> None:
            self.data += data
            for text in changes:
                path.write_text(text)
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

        def hexdigest(self) -> str:
            return sha256(self.data).hexdigest()

    sha256 = file_tree.hashlib.sha256
    monkeypatch.setattr(file_tree.hashlib, "sha256", Digest)
    assert file_tree.hashed_entry(data, "a").sha256 == sha256(b"A").hexdigest()


@pytest.mark.parametrize("at", [None, (1, 1)], ids=["as it is", "with an old time"])
def test_a_file_just_written_is_not_remembered(
    data: Path, read: list[str], at: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_tree, "_SETTLED_S", 3600.0)
    (data / "a").write_text("x")
    os.utime(data / "a", at)
    list_data(data)
    read.clear()
    list_data(data)
    assert "set/a" in read


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"%s": 1}', b'{"%s": [[], 5]}', b'{"%s": [[1, 2], "x"]}', b"\xff"]
)
def test_a_damaged_memory_does_no_harm(data: Path, cache: Path, read: list[str], damage: bytes) -> None:
    right = list_data(data).hash
    cache.write_bytes(damage.replace(b"%s", os.fsencode(data / "a")))
    read.clear()
    assert list_data(data).hash == right
    assert "set/a" in read
    assert [each.name for each in cache.parent.iterdir()] == [cache.name]


def test_a_memory_that_can_not_be_written_is_done_without(data: Path, cache: Path) -> None:
    cache.parent.parent.write_text("a file where the folder should be")
    assert list_data(data).files == 4


def test_what_is_gone_is_forgotten(data: Path, cache: Path) -> None:
    list_data(data)
    (data / "a").unlink()
    (data / "new").write_text("new")
    os.utime(data / "new", (1, 1))
    list_data(data)
    assert str(data / "a") not in cache.read_text()
    assert str(data / "new") in cache.read_text()


def test_what_was_read_before_an_interruption_is_kept(
    data: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = data_tree.hashed_entry

    def interrupted(root: Path, name: str, pace: object) -> object:
        if name.endswith("sub/b"):
            raise KeyboardInterrupt
        return hashed(root, name, pace)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(data_tree, "hashed_entry", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list_data(data)
    read.clear()
    list_data(data)
    assert "set/a" not in read
