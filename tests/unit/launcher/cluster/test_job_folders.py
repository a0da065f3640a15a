"""Jobs' folders on a node, asked for from here; the node is this machine."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster import job_folders
from launcher.cluster.job_folders import ask, packed
from launcher.ssh.connection import Finished
from tests.support.cluster.local_remote import LocalRemote
from tests.support.job_folder import OWNER, TOKEN


def unpacked(data: bytes) -> dict[str, tuple[bytes, int]]:
    """Return content and mode by name."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {member: tar.extractfile(member) for member in tar}
        return {member.name: (file.read() if file else b"", member.mode) for member, file in files.items()}


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_a_tar_is_packed_piece_by_piece(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * size)
    long = "run/checkpoints/" + "ü" * 120
    pieces = list(packed({"plan.json": b"{}", "empty": b""}, {long: file, "last": file}))
    assert max(len(piece) for piece in pieces) < 1 << 21
    assert unpacked(b"".join(pieces)) == {
        "plan.json": (b"{}", 0o600),
        "empty": (b"", 0o600),
        long: (b"x" * size, 0o600),
        "last": (b"x" * size, 0o600),
    }


def test_what_is_packed_does_not_wait_for_what_was_not_asked_for(tmp_path: Path) -> None:
    """A file that can't be read raises when its turn comes; what comes before it has been sent."""
    pieces = packed({"plan.json": b"{}"}, {"gone": tmp_path / "gone"})
    assert next(pieces)
    with pytest.raises(FileNotFoundError, match="gone"):
        next(pieces)


def test_links_are_packed_as_links(tmp_path: Path) -> None:
    (tmp_path / "step-1.pt").write_bytes(b"one")
    for name, leads in {"last.pt": "step-1.pt", "gone.pt": "nowhere/" + "ü" * 120}.items():
        (tmp_path / name).symlink_to(leads)
    files = {f"run/checkpoints/{path.name}": path for path in sorted(tmp_path.iterdir())}
    with tarfile.open(fileobj=io.BytesIO(b"".join(packed({}, files)))) as tar:
        members = {member.name.rpartition("/")[2]: member for member in tar}
    assert [members[name].issym() for name in ("last.pt", "gone.pt", "step-1.pt")] == [True, True, False]
    assert (members["last.pt"].linkname, members["gone.pt"].linkname) == ("step-1.pt", "nowhere/" + "ü" * 120)


def test_a_file_that_grows_while_it_is_read_stays_as_long_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3_000_000)
    pieces = packed({}, {"file": file, "after": file})
    first = next(pieces)
    with file.open("ab") as more:
        more.write(b"more")
    members = unpacked(first + b"".join(pieces))
    assert members["file"][0] == b"x" * 3_000_000 and members["after"][0].endswith(b"xmore")


def test_a_file_that_becomes_shorter_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3_000_000)
    pieces = packed({}, {"file": file})
    next(pieces)
    file.write_bytes(b"x")
    with pytest.raises(RingmasterError, match="file became shorter"):
        list(pieces)


def test_what_a_node_does_and_refuses(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    remote: Any = LocalRemote(tmp_path / "jobs")
    words = ("prepare", str(tmp_path / "jobs"), "job", OWNER, str(tmp_path / "data"), TOKEN)
    assert ask(remote, *words, files=packed({"plan.json": b"{}"}, {})) == {}
    assert list(ask(remote, "jobs", str(tmp_path / "jobs"))["jobs"]) == ["job"]
    with pytest.raises(RingmasterError, match=r"^node1: there is a job job on this node already; ") as raised:
        ask(remote, *words, files=packed({}, {}))
    assert raised.value.exit_code == ExitCode.USAGE
    with pytest.raises(RingmasterError, match="node1: KeyError: 'dance'") as raised:
        ask(remote, "dance")
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_an_answer_behind_a_login_shells_greeting_is_read(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    remote: Any = LocalRemote(tmp_path / "jobs")
    remote.greeting = b"Welcome to node1!\n{not ours}\n"
    assert ask(remote, "jobs", str(tmp_path / "jobs"))["jobs"] == {}


@pytest.mark.parametrize("out", [b"", b"Welcome!\n", b"{}\nBye!\n", b"\xff"])
def test_what_is_no_answer_is_said_with_the_nodes_name(out: bytes) -> None:
    class Talking(LocalRemote):
        def run(self, *_: Any, **__: Any) -> Finished:
            return Finished(code=0, out=out, err=b"")

    remote: Any = Talking(Path("/jobs"))
    with pytest.raises(
        RingmasterError, match=r"^node1: its answer is .*its shell must print nothing when it runs a command"
    ) as raised:
        ask(remote, "jobs", "/jobs")
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_what_runs_there_is_the_file_itself(tmp_path: Path) -> None:
    source = job_folders._SOURCE.read_text()
    compile(source, "node_job.py", "exec", dont_inherit=True)
    assert "from launcher" not in source and "import launcher" not in source
