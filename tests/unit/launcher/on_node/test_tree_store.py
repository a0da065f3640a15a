"""The store of code and data on a node; the program runs as it does there, from its source alone."""

import ast
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.transfer.upload import SENDING
from launcher.on_node import tree_store
from launcher.on_node.tree_store import EXECUTABLE, PLAIN, Entry, block, manifest_of, parse

SOURCE = Path(tree_store.__file__).read_text()
HOSTILE = ("-rf", "a b", "q\"uo'te", "new\nline", "$(x)", "ü训练", b"\xff\xfe".decode("utf-8", "surrogateescape"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(path: str, data: bytes, mode: int = PLAIN) -> Entry:
    return Entry(path, mode, len(data), sha256(data))


def blob(data: bytes) -> bytes:
    return f"{sha256(data)} {len(data)}\n".encode() + data


def inside(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def node(*words: object, stdin: bytes) -> tuple[int, dict[str, Any]]:
    """Run the program; return its exit code and last message."""
    command = [sys.executable, "-IS", "-c", SOURCE, *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60)
    assert done.stderr == b"", done.stderr.decode()
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_it_stands_alone_on_an_old_python() -> None:
    module = ast.parse(SOURCE, feature_version=(3, 9))
    names = {alias.name for each in ast.walk(module) if isinstance(each, ast.Import) for alias in each.names}
    names |= {str(each.module) for each in ast.walk(module) if isinstance(each, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert SOURCE.isascii()  # with the locale C, Python accepts no other words on its command line
    assert len(SOURCE) < 100_000  # it is one word of a command line: Linux takes 128 KiB


def test_a_manifest_is_the_same_whatever_the_order_and_reads_back() -> None:
    entries = [file(name, name.encode("utf-8", "surrogateescape")) for name in HOSTILE]
    entries += [Entry("empty", PLAIN), Entry("folder/link", PLAIN, link="../-rf")]
    manifest = manifest_of(entries)
    assert manifest == manifest_of(reversed(entries))
    assert set(parse(manifest)) == set(entries)


@pytest.mark.parametrize(
    "entries",
    [
        [file("../x", b"")],
        [file("/etc/x", b"")],
        [file("a/../../x", b"")],
        [file("a//b", b"")],
        [file("./a", b"")],
        [file("", b"")],
        [file("a\0b", b"")],
        [file("\ud800", b"")],
        [file("a", b""), file("a", b"x")],
        [file("a", b""), file("a/b", b"")],
        [Entry("a", PLAIN, link="b"), file("a/b", b"")],
        [Entry("a", PLAIN, link="/etc")],
        [Entry("a/b", PLAIN, link="../../etc")],
        [Entry("a", PLAIN, link="..")],
        [Entry("a", PLAIN, link="b\0")],
        [Entry("a", 0o4755, 1, "0" * 64)],
        [Entry("a", PLAIN, -1, "0" * 64)],
        [Entry("a", PLAIN, 1, "../../x")],
        [Entry("a", PLAIN, 1, "0" * 64, "b")],
        [Entry("a", PLAIN, 1)],
        [Entry("a", 420.0, True, "0" * 64)],  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_manifest_that_would_do_harm_is_refused(entries: list[Entry]) -> None:
    rows = json.dumps(entries, separators=(",", ":")).encode()
    with pytest.raises(ValueError, match=r"manifest|surrogate"):
        parse(rows)


def test_a_manifest_in_another_form_is_refused() -> None:
    for text in (b"", b"{}", b"[1]", b"[[]]", b"null", b'["abcde"]', json.dumps([file("a", b"")], indent=1).encode()):
        with pytest.raises(ValueError, match="no manifest"):
            parse(text)
    with pytest.raises(ValueError, match="canonical"):
        parse(json.dumps([file("b", b""), file("a", b"")], separators=(",", ":")).encode())


def test_an_unchanged_tree_is_built_in_one_call_and_is_a_copy(tmp_path: Path) -> None:
    store, first, second = tmp_path / "jobs/.code", tmp_path / "jobs/a/code", tmp_path / "jobs/b/code"
    entries = [file(name, b"x" * 9) for name in HOSTILE]
    entries += [file("bin/run", b"go", EXECUTABLE), file("bin/none", b""), Entry("ln", PLAIN, link="bin/run")]
    manifest = block(manifest_of(entries))
    assert node("make", store, first, "", stdin=manifest)[1]["missing"] == sorted(map(sha256, (b"x" * 9, b"go", b"")))
    assert not first.exists()
    sent = manifest + blob(b"x" * 9) + blob(b"go") + blob(b"")
    assert node("make", store, first, "", stdin=sent) == (0, {"missing": []})
    (first / "bin/run").write_bytes(b"changed by the job")
    assert node("make", store, second, "", stdin=manifest) == (0, {"missing": []})
    assert (second / "bin/run").read_bytes() == (second / "ln").read_bytes() == b"go"
    assert sorted(inside(second)) == sorted([*HOSTILE, "bin", "ln"])
    assert all((second / name).read_bytes() == b"x" * 9 for name in HOSTILE)
    modes = [(second / name).stat().st_mode & 0o777 for name in ("", "bin", "bin/run", "bin/none")]
    assert modes == [0o700, 0o700, 0o755, 0o644]
    assert (second / "ln").readlink() == Path("bin/run")
    assert (store.stat().st_mode | (store / "blobs").stat().st_mode) & 0o077 == 0
    assert sorted(inside(second.parent)) == ["code", "code.placed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_the_copy_to_the_job(tmp_path: Path) -> None:
    entries = [file("a/b", b"x"), Entry("a/ln", PLAIN, link="b")]
    node("make", tmp_path / ".code", tmp_path / "j/code", "10001:10002", stdin=block(manifest_of(entries)) + blob(b"x"))
    statuses = [os.lstat(tmp_path / "j/code" / name) for name in ("", "a", "a/b", "a/ln")]
    assert {(each.st_uid, each.st_gid) for each in statuses} == {(10001, 10002)}
    assert (tmp_path / "j").stat().st_uid == 0


def test_what_arrives_damaged_or_in_part_is_not_kept(tmp_path: Path) -> None:
    store, target, manifest = tmp_path / ".code", tmp_path / "j/code", block(manifest_of([file("a", b"right")]))
    code, message = node("make", store, target, "", stdin=manifest + blob(b"right").replace(b"\nright", b"\nwrong"))
    assert (code, message) == (1, {"error": "'a' changed while it was sent; try again"})
    code, message = node("make", store, target, "", stdin=manifest + blob(b"right")[:-1])
    assert (code, message) == (1, {"error": "the connection ended early"})
    code, message = node("make", store, target, "", stdin=manifest + blob(b"another"))
    assert (code, message) == (1, {"error": "a blob that is not of the tree"})
    code, message = node("make", store, target, "", stdin=manifest[:-1])
    assert (code, message) == (1, {"error": "the connection ended early"})
    assert inside(store / "blobs") == []
    (store / "blobs" / sha256(b"right")).write_bytes(b"")  # as after a power cut
    assert node("make", store, target, "", stdin=manifest)[1] == {"missing": [sha256(b"right")]}
    assert not target.exists()


def test_a_copy_that_is_there_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "j/code"
    target.mkdir(parents=True)
    (target / "results").touch()
    code, message = node("make", tmp_path / ".code", target, "", stdin=block(manifest_of([file("a", b"")])) + blob(b""))
    assert (code, message["errno"], message["path"]) == (1, "EEXIST", str(target))
    assert inside(target) == ["results"]


def test_blobs_long_unused_go_once_a_day(tmp_path: Path) -> None:
    store, manifest = tmp_path / ".code", block(manifest_of([file("a", b"used")]))
    node("make", store, tmp_path / "1/code", "", stdin=manifest + blob(b"used"))
    blobs, old = store / "blobs", time.time() - 15 * 86400
    for name in (sha256(b"used"), sha256(b"unused"), "half.1.part"):
        (blobs / name).touch()
        os.utime(blobs / name, (old, old))
    node("make", store, tmp_path / "2/code", "", stdin=manifest)
    assert (blobs / sha256(b"unused")).exists()
    os.utime(store / "lock", (old, old))
    with (store / "lock").open() as lock:  # somebody else is building
        fcntl.flock(lock, fcntl.LOCK_SH)
        node("make", store, tmp_path / "3/code", "", stdin=manifest)
        assert (blobs / sha256(b"unused")).exists()
    node("make", store, tmp_path / "4/code", "", stdin=manifest)
    assert inside(blobs) == [sha256(b"used")]


DATA = {"set/a": b"a" * 3_000_000, "set/sub/b": b"b", "set/none": b""}
MANIFEST = manifest_of([*(file(path, data) for path, data in DATA.items()), Entry("set/empty", PLAIN)])
HASH = sha256(MANIFEST)
PATHS = [entry.path for entry in parse(MANIFEST)]


def piece(path: str, offset: int = 0, data: bytes | None = None) -> bytes:
    body = (DATA[path] if data is None else data)[offset:]
    return b"%d %d %d\n" % (PATHS.index(path), offset, len(body)) + body


def wanted(own: Path) -> list[list[int]]:
    code, message = node("want", own, HASH, stdin=block(MANIFEST))
    assert code == 0
    return [[PATHS[index], offset] for index, offset in message["wanted"]]


def whole(own: Path) -> bool:
    data = own / HASH
    assert not data.exists() or all((data / path).read_bytes() == content for path, content in DATA.items())
    return data.exists() and node("have", own, HASH, stdin=b"")[1]["complete"]


def test_data_is_taken_and_closed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert node("have", own, HASH, stdin=b"") == (0, {"complete": False})
    assert wanted(own) == [[path, 0] for path in sorted(DATA)]
    stream = block(MANIFEST) + b"".join(map(piece, DATA)) + tree_store.END
    assert node("take", own, HASH, stdin=stream) == (0, {"complete": True})
    assert whole(own)
    assert inside(own) == [HASH]
    modes = [(own / name).stat().st_mode & 0o777 for name in (".", HASH, f"{HASH}/set/sub", f"{HASH}/set/a")]
    assert modes == [0o700, 0o755, 0o755, 0o444]
    assert inside(own / HASH / "set/empty") == []
    assert node("want", own, HASH, stdin=block(MANIFEST)) == (0, {"complete": True, "wanted": []})
    assert node("take", own, HASH, stdin=block(MANIFEST)) == (0, {"complete": True})  # as the second of two at once


def test_data_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    own = tmp_path / "own"
    broken = block(MANIFEST) + piece("set/sub/b") + piece("set/a")[:2_000_000]
    assert node("take", own, HASH, stdin=broken) == (1, {"error": "the connection ended early"})
    [[path, offset], last] = wanted(own)
    assert (path, last) == ("set/a", ["set/none", 0])
    assert 1_000_000 < offset < 2_000_000
    rest = block(MANIFEST) + piece("set/a", offset) + piece("set/none") + tree_store.END
    assert node("take", own, HASH, stdin=rest) == (0, {"complete": True})
    assert whole(own)


def test_data_that_is_not_right_is_wanted_again(tmp_path: Path) -> None:
    own, part = tmp_path / "own", tmp_path / "own" / f"{HASH}.part"
    (part / "set/sub").mkdir(parents=True)
    (part / "set/sub/b").write_bytes(b"c")
    (part / "set/a").write_bytes(b"z" * 100)
    (part / "set/none").write_bytes(b"too long")
    assert wanted(own) == [["set/a", 100], ["set/none", 0], ["set/sub/b", 0]]
    code, message = node("take", own, HASH, stdin=block(MANIFEST) + piece("set/a", 100))
    assert (code, message) == (1, {"error": "'set/a' changed while it was sent; try again"})
    assert wanted(own)[0] == ["set/a", 0]
    code, message = node("take", own, HASH, stdin=block(MANIFEST) + piece("set/a", 7))
    assert (code, message) == (1, {"error": "'set/a' is not as long as it was a moment ago; try again"})
    code, message = node("take", own, HASH, stdin=block(MANIFEST) + piece("set/a") + tree_store.END)
    assert code == 1
    assert not whole(own)
    code, message = node("take", own, HASH, stdin=block(MANIFEST.replace(b"set/a", b"set/c")))
    assert (code, message) == (1, {"error": "the manifest is not that of the tree"})


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    own, outside = tmp_path / "own", tmp_path / "outside"
    outside.mkdir()
    part = own / f"{HASH}.part"
    part.mkdir(parents=True)
    (part / "set").symlink_to(outside)
    assert node("take", own, HASH, stdin=block(MANIFEST) + piece("set/a"))[1]["errno"] == "ENOTDIR"
    (part / "set").unlink()
    (part / "set").mkdir()
    (part / "set/a").symlink_to(outside / "a")
    assert node("take", own, HASH, stdin=block(MANIFEST) + piece("set/a"))[1]["errno"] == "ELOOP"
    assert inside(outside) == []


def test_the_second_of_two_transfers_waits_and_finds_it_there(tmp_path: Path) -> None:
    own = tmp_path / "own"
    command = [sys.executable, "-c", SOURCE, "take", str(own), HASH]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:
        assert first.stdin is not None and second.stdin is not None and second.stdout is not None
        first.stdin.write(block(MANIFEST) + piece("set/sub/b"))
        first.stdin.flush()
        while not (own / f"{HASH}.part/set/sub/b").exists():
            time.sleep(0.01)
        second.stdin.write(block(MANIFEST))
        second.stdin.flush()
        assert json.loads(second.stdout.readline()) == {"doing": "waiting"}
        first.communicate(piece("set/a") + piece("set/none") + tree_store.END, timeout=30)
        assert second.stdout.read().splitlines()[-1] == b'{"complete": true}'
    assert whole(own)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` that runs its last word here; a test may replace it."""
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    return path


def fetch(tmp_path: Path) -> tuple[int, dict[str, Any]]:
    words = ("fetch", tmp_path / "to", HASH, "node1", tmp_path / "from" / HASH, 0)
    return node(*words, stdin=block(MANIFEST) + block(SENDING))


def test_a_node_fetches_from_another_by_words_that_no_login_shell_changes(tmp_path: Path, ssh: Path) -> None:
    ssh.write_text(ssh.read_text().replace("exec", f'printf %s "$last" >{tmp_path}/seen\nexec'))
    stream = block(MANIFEST) + b"".join(map(piece, DATA)) + tree_store.END
    node("take", tmp_path / "from", HASH, stdin=stream)
    node("take", tmp_path / "to", HASH, stdin=block(MANIFEST) + piece("set/a")[:2_000_000])
    assert fetch(tmp_path) == (0, {"complete": True})
    assert whole(tmp_path / "to")
    assert re.fullmatch(r"exec /bin/sh -c '[^'!\\\n]+' sh [A-Za-z0-9+/= ]+", (tmp_path / "seen").read_text())


def test_a_node_fetches_from_a_folder_of_its_own_without_ssh(tmp_path: Path) -> None:
    for name, data in DATA.items():
        path = tmp_path / "earlier" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    words = ("fetch", tmp_path / "to", HASH, "", tmp_path / "earlier", 0)
    assert node(*words, stdin=block(MANIFEST) + block(SENDING)) == (0, {"complete": True})
    assert whole(tmp_path / "to")


def started(*words: object) -> "subprocess.Popen[bytes]":
    """Start the program, and in the same group what it starts."""
    command = [sys.executable, "-IS", "-c", SOURCE, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def feed(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.01)


def test_a_node_fetches_what_still_arrives_at_another_and_goes_on_from_a_third(tmp_path: Path, ssh: Path) -> None:
    """Of three in a chain the one in the middle fails; the last goes on from the first, at the byte that it had."""
    own = {name: tmp_path / name for name in ("first", "middle", "last")}
    program = block(MANIFEST) + block(SENDING)
    with (
        started("take", own["first"], HASH) as first,
        started("fetch", own["middle"], HASH, "a", own["first"] / HASH, 20) as middle,
        started("fetch", own["last"], HASH, "b", own["middle"] / HASH, 20, "a", own["first"] / HASH, 0) as last,
    ):
        for process in (middle, last):
            feed(process, program)
        whole_a = piece("set/a")
        feed(first, block(MANIFEST) + whole_a[:2_000_000])
        until(lambda: (path := own["last"] / f"{HASH}.part/set/a").exists() and path.stat().st_size > 1_000_000)
        os.killpg(middle.pid, signal.SIGKILL)
        assert last.stdout is not None
        moved = json.loads(next(line for line in last.stdout if b"moved" in line))
        assert moved["source"] == "b"
        rest = whole_a[2_000_000:] + b"".join(piece(name) for name in DATA if name != "set/a") + tree_store.END
        feed(first, rest)
        assert json.loads(last.stdout.read().splitlines()[-1]) == {"complete": True}
    assert whole(own["first"]) and whole(own["last"])
    assert not (own["middle"] / HASH).exists()


def test_what_is_adopted_may_be_changed_and_is_nowhere_else(tmp_path: Path) -> None:
    own, target = tmp_path / "job" / "inherited", tmp_path / "job" / "run"
    node("take", own, HASH, stdin=block(MANIFEST) + b"".join(map(piece, DATA)) + tree_store.END)
    target.mkdir()
    assert node("adopt", own, HASH, target, "1000:1000", stdin=b"") == (0, {"complete": True})
    assert (target / "set/a").read_bytes() == DATA["set/a"]
    modes = {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file() and not path.is_symlink()}
    assert modes <= {0o600, 0o700}
    assert {path.stat().st_mode & 0o777 for path in [target, *target.rglob("*")] if path.is_dir()} == {0o700}
    if os.geteuid() == 0:
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in target.rglob("*")} == {(1000, 1000)}
    assert inside(tmp_path / "job") == ["run"]


def test_what_is_adopted_takes_the_place_of_no_file(tmp_path: Path) -> None:
    own, target = tmp_path / "own", tmp_path / "run"
    node("take", own, HASH, stdin=block(MANIFEST) + b"".join(map(piece, DATA)) + tree_store.END)
    target.mkdir()
    (target / "mine").touch()
    code, message = node("adopt", own, HASH, target, "1000:1000", stdin=b"")
    assert (code, message["errno"], inside(target)) == (1, "ENOTEMPTY", ["mine"])


def test_a_source_that_fails_is_told_from_a_node_that_fails(
    tmp_path: Path, ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, message = fetch(tmp_path)
    assert (code, message["source"]) == (1, True)
    assert "No such file" in message["error"]
    ssh.write_text("#!/bin/sh\necho 'node1: Permission denied' >&2\nexit 255\n")
    assert fetch(tmp_path) == (1, {"error": "node1: Permission denied", "source": True})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch(tmp_path) == (1, {"error": "ssh: No such file or directory", "source": True})
    (tmp_path / "to").rename(tmp_path / "moved")
    (tmp_path / "to").touch()
    code, message = fetch(tmp_path)
    assert (code, message["errno"], "source" in message) == (1, "ENOTDIR", False)
