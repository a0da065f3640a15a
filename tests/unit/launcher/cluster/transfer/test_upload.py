"""Code and data on their way to nodes; the nodes are folders here, their programs run for real."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.errors import RingmasterError
from launcher.cluster.transfer import upload
from launcher.cluster.transfer.code import list_code
from launcher.cluster.transfer.data import list_data
from launcher.cluster.transfer.file_tree import FileTree
from launcher.cluster.transfer.upload import Holder, chains, upload_code, upload_data


class FakeRemote:
    """Runs a node's programs on this machine, with input and output as over a connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.verbs: list[str] = []
        self.sent = 0

    def stream(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", on_output: Callable[[bytes], None]
    ) -> int:
        self.verbs.append(words[4])
        command = ["sh", "-c", shlex.join(words)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
            assert process.stdin is not None and process.stdout is not None
            feeder = threading.Thread(target=self._feed, args=(process.stdin, stdin))
            feeder.start()
            while data := process.stdout.read1(7):  # type: ignore[attr-defined]
                on_output(data)
            process.wait()
            feeder.join()
        return process.returncode

    def _feed(self, pipe: Any, stdin: bytes | Iterable[bytes]) -> None:
        with suppress(BrokenPipeError):
            for piece in (stdin,) if isinstance(stdin, bytes) else stdin:
                pipe.write(piece)
                self.sent += len(piece)
            pipe.close()


class Cluster:
    """Three nodes, each with its folders."""

    def __init__(self, folder: Path) -> None:
        names = ("node1", "node2", "node3")
        self.remotes: dict[str, Any] = {name: FakeRemote(name) for name in names}
        self.jobs = {name: str(folder / name / "jobs") for name in names}
        self.data = {name: str(folder / name / "data") for name in names}
        self.printed: list[str] = []

    def code(self, tree: FileTree, name: str) -> list[list[str]]:
        """Upload code; return the verbs that each node ran."""
        upload_code(self.remotes, tree, self.jobs, name, say=self.printed.append)
        return self.verbs()

    def own(self, tree: FileTree) -> list[list[str]]:
        """Upload data; return the verbs that each node ran."""
        self.path = upload_data(self.remotes, tree, self.data, {name: name for name in self.data}, self.printed.append)
        return self.verbs()

    def verbs(self) -> list[list[str]]:
        taken = [remote.verbs for remote in self.remotes.values()]
        for remote in self.remotes.values():
            remote.verbs, remote.sent = [], 0
        return taken


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """An `ssh` between the nodes: it runs its last word here; a test may replace it."""
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def cluster(tmp_path: Path, ssh: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    (ssh.parent / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Cluster(tmp_path)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "pack").mkdir(parents=True)
    (root / "train.py").write_text("import pack")
    (root / "pack/__init__.py").write_text("")
    (root / "pack/tool.sh").write_text("#!/bin/sh")
    (root / "pack/tool.sh").chmod(0o755)
    (root / "pack/large.bin").write_bytes(os.urandom(300_000))
    (root / "pack/-rf\n$(x)").symlink_to("../train.py")
    return root


def listed(code: Path) -> FileTree:
    return list_code(code, code / "train.py")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "my set"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a").write_bytes(os.urandom(3_000_000))
    (folder / "b").write_bytes(b"b")
    (folder / "none").touch()
    return folder


def test_code_is_on_every_node_the_second_time_by_one_call(cluster: Cluster, code: Path) -> None:
    assert cluster.code(listed(code), "first") == [["make", "make"]] * 3
    assert cluster.code(listed(code), "second") == [["make"]] * 3
    for folder in cluster.jobs.values():
        for name in ("first", "second"):
            placed = Path(folder) / name / "code"
            assert listed(placed).entries == listed(code).entries


def test_of_a_changed_tree_only_the_changed_file_is_sent(cluster: Cluster, code: Path) -> None:
    cluster.code(listed(code), "first")
    (code / "train.py").write_text("import pack, os")
    tree = listed(code)
    upload_code(cluster.remotes, tree, cluster.jobs, "second", say=cluster.printed.append)
    manifest = len(upload.block(tree.manifest))
    assert {remote.sent for remote in cluster.remotes.values()} == {2 * manifest + 64 + len(" 15\nimport pack, os")}
    assert (Path(cluster.jobs["node3"]) / "second/code/train.py").read_text() == "import pack, os"


@pytest.mark.parametrize("to", [b"", b"other"], ids=["shorter", "as long"])
def test_code_that_changes_on_its_way_is_an_error(cluster: Cluster, code: Path, to: bytes) -> None:
    tree = listed(code)
    (code / "pack/tool.sh").write_bytes(to.ljust(len(to) and len("#!/bin/sh")))
    with pytest.raises(RingmasterError, match=r"node1: .*tool\.sh' changed while it was sent; try again"):
        cluster.code(tree, "job")
    assert not (Path(cluster.jobs["node1"]) / "job/code").exists()


def test_code_that_is_gone_on_its_way_is_an_error(cluster: Cluster, code: Path) -> None:
    tree = listed(code)
    (code / "pack/tool.sh").unlink()
    with pytest.raises(RingmasterError, match=r"tool\.sh: can't be read \(No such file"):
        cluster.code(tree, "job")


def test_errors_name_the_node_and_the_mending(cluster: Cluster, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.code(listed(code), "job")
    with pytest.raises(RingmasterError, match=r"node2: .*node2/jobs/job/code: exists already; give") as raised:
        cluster.code(listed(code), "job")
    assert raised.value.exit_code == 3
    program = 'raise OSError(28, os.strerror(28), "/var/x")'
    failing = upload.SOURCE.replace("        _store(stream, blobs", f"        {program}\n        _store(stream, blobs")
    with monkeypatch.context() as patch:
        patch.setattr(upload, "SOURCE", failing)
        with pytest.raises(RingmasterError, match=r"node3: /var/x: No space left on device; free some space there"):
            cluster.code(listed(code), "full")
    with monkeypatch.context() as patch:
        patch.setattr(upload, "SOURCE", "import nonsense")
        with pytest.raises(RingmasterError, match=r"node1: files can't be sent there: .*No module named 'nonsense'"):
            cluster.code(listed(code), "broken")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(subprocess.Popen, "__init__", _with_shell(subprocess.Popen.__init__))
    with pytest.raises(RingmasterError, match="node1: there is no python3; make provision"):
        cluster.code(listed(code), "bare")


def _with_shell(start: Callable[..., None]) -> Callable[..., None]:
    def patched(self: object, command: list[str], **options: Any) -> None:
        start(self, ["/bin/sh", *command[1:]], **options)

    return patched


def test_data_is_sent_once_and_fetched_by_the_others(cluster: Cluster, data: Path) -> None:
    tree = list_data(data, cluster.printed.append)
    assert cluster.own(tree) == [["have", "want", "take"], ["have", "fetch"], ["have", "fetch"]]
    assert cluster.path == f"own/{tree.hash}/my set"
    for folder in cluster.data.values():
        assert list_data(Path(folder) / cluster.path, cluster.printed.append).hash == tree.hash
    assert cluster.own(tree) == [["have"]] * 3


def test_a_single_file_is_data_too(cluster: Cluster, data: Path) -> None:
    tree = list_data(data / "sub/a", cluster.printed.append)
    cluster.own(tree)
    assert (Path(cluster.data["node3"]) / cluster.path).read_bytes() == (data / "sub/a").read_bytes()


def test_data_that_one_node_has_is_not_sent_at_all(cluster: Cluster, data: Path) -> None:
    tree = list_data(data, cluster.printed.append)
    third = {"node3": cluster.remotes["node3"]}
    upload_data(third, tree, cluster.data, {"node3": "node3"}, cluster.printed.append)
    cluster.verbs()
    assert cluster.own(tree) == [["have", "fetch"], ["have", "fetch"], ["have"]]


def test_where_nodes_do_not_reach_each_other_data_is_sent_to_each(cluster: Cluster, data: Path, ssh: Path) -> None:
    ssh.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n")
    tree = list_data(data, cluster.printed.append)
    assert cluster.own(tree)[1:] == [["have", "fetch", "want", "take"], ["have", "fetch", "fetch", "want", "take"]]
    why = "can't fetch the data from another node (Host key verification failed.), so it is sent there too"
    lines = [line for line in cluster.printed if "can't fetch" in line]  # without progress, if it takes long
    assert sorted(lines) == [f"node2: {why}", f"node3: {why}"]
    assert list_data(Path(cluster.data["node3"]) / cluster.path, cluster.printed.append).hash == tree.hash


def test_data_that_changes_on_its_way_is_an_error_and_goes_on_from_there(
    cluster: Cluster, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_PATIENCE_S", 0)
    tree, whole = list_data(data, cluster.printed.append), (data / "sub/a").read_bytes()
    (data / "sub/a").write_bytes(whole[:2_000_000])
    with pytest.raises(RingmasterError, match=r"node1: .*sub/a' changed while it was sent"):
        cluster.own(tree)
    (data / "sub/a").write_bytes(whole)
    cluster.verbs()
    upload_data(cluster.remotes, tree, cluster.data, {name: name for name in cluster.data}, cluster.printed.append)
    assert cluster.remotes["node1"].sent < 2_000_000
    assert cluster.verbs()[0] == ["have", "want", "take"]


def test_a_node_that_fails_costs_only_itself(cluster: Cluster, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has no room for a folder of ours: the second takes its place, and the third fetches from that."""
    monkeypatch.setattr(upload, "_PATIENCE_S", 3)
    Path(cluster.data["node1"]).parent.mkdir(parents=True)
    Path(cluster.data["node1"]).touch()
    tree = list_data(data, cluster.printed.append)
    with pytest.raises(RingmasterError, match="node1") as raised:
        cluster.own(tree)
    assert "node2" not in str(raised.value) and "node3" not in str(raised.value)
    for name in ("node2", "node3"):
        assert (
            list_data(Path(cluster.data[name]) / "own" / tree.hash / "my set", cluster.printed.append).hash == tree.hash
        )
    assert cluster.remotes["node3"].sent < 1_000_000


@given(lacking=st.integers(0, 7), having=st.integers(1, 3))
def test_every_chain_begins_at_a_holder_and_everybody_falls_back_on_all_before(lacking: int, having: int) -> None:
    names = [f"node{number}" for number in range(lacking)]
    places = {name: Holder(name=name, address=name, top="/t", arriving=True) for name in names}
    known = [Holder(name=f"holder{number}", address="h", top="/t") for number in range(having)]
    order = chains(places, known)
    assert list(order) == names
    for number, name in enumerate(names):
        sources = [one.name for one in order[name]]
        assert sources[0] == (known[number].name if number < having else names[number - having])
        assert {one.name for one in known} <= set(sources)
        assert all(one in {each.name for each in known} or names.index(one) < number for one in sources)
        assert len(sources) == len(set(sources))
    firsts = [order[name][0] for name in names]
    assert len(firsts) == len(set(firsts))  # no node sends to two


def test_a_node_with_an_earlier_copy_begins_with_that() -> None:
    places = {name: Holder(name=name, address=name, top="/new", arriving=True) for name in ("node1", "node2")}
    earlier = [Holder(name="node2", address="node2", top="/old")]
    order = chains(places, earlier)
    assert (order["node2"][0].name, order["node2"][0].top) == ("node2", "/old")


def test_progress_is_said_once_a_second(cluster: Cluster, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, clock = list_data(data / "sub/a", cluster.printed.append), iter(each / 2 for each in range(1000))
    monkeypatch.setattr(upload.time, "monotonic", lambda: next(clock))
    feed = upload._Feed("node1", tree, cluster.printed.append)
    assert sum(map(len, feed.pieces([(0, 0)]))) == 3_000_000 + len("0 0 3000000\n") + len(upload.END)
    assert cluster.printed == ["node1: sent 1.0 MB of 3.0 MB", "node1: sent 2.1 MB of 3.0 MB"]
