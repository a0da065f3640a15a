"""What travels of a user's code."""

import hashlib
import os
import socket
import subprocess
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer import code, file_tree
from launcher.cluster.transfer.code import list_code
from launcher.cluster.transfer.file_tree import FileTree, describe
from launcher.on_node.tree_store import parse

HOSTILE = ("-rf", "a b", "q\"uo'te", "new\nline", "$(x)", "ü训练", b"\xff\xfe".decode("utf-8", "surrogateescape"))


def write(root: Path, *names: str) -> Path:
    """Write files with their own names as content; return the last one's path."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(name))
    return root / names[-1]


def git(root: Path, *words: str) -> None:
    settings = ("-c", "user.name=x", "-c", "user.email=x", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", root, *settings, *words], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    return root


def names(tree: FileTree) -> list[str]:
    return [entry.path for entry in tree.entries]


def links(tree: FileTree) -> dict[str, str]:
    return {entry.path: entry.link for entry in tree.entries if entry.link}


@pytest.mark.parametrize("with_git", [True, False])
def test_hostile_names_and_modes_travel(tmp_path: Path, repo: Path, with_git: bool) -> None:
    root = repo if with_git else tmp_path / "plain"
    write(root, *HOSTILE, "pack/module.py", "train.py")
    (root / "pack/module.py").chmod(0o700)
    tree = list_code(root, root / "train.py")
    assert sorted(names(tree)) == sorted([*HOSTILE, "pack/module.py", "train.py"])
    assert {entry.path for entry in tree.entries if entry.mode == 0o755} == {"pack/module.py"}
    assert parse(tree.manifest) == tree.entries
    assert tree.warnings == ()
    assert all(Path(os.fsdecode(tree.source(each))).read_bytes() == each.name for each in tree.entries)


def test_what_git_ignores_stays_but_the_script(repo: Path) -> None:
    write(repo, "kept.py", "gone.py", "data/big", "deep/.gitignore", "deep/x.log", "out/y.py", "out/train.py")
    (repo / ".gitignore").write_text("data/\nout/\n")
    (repo / "deep/.gitignore").write_text("*.log\n")
    git(repo, "add", "kept.py", "gone.py")
    git(repo, "commit", "-qm", "x")
    (repo / "gone.py").unlink()
    write(repo, "untracked.py", "__pycache__/untracked.pyc", ".venv/lib/x.py")
    tree = list_code(repo, repo / "out/train.py")
    assert names(tree) == [".gitignore", "deep/.gitignore", "kept.py", "out/train.py", "untracked.py"]


def test_a_variable_of_a_git_hook_does_not_mislead(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(repo, "ignored", "train.py")
    (repo / ".gitignore").write_text("ignored\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert names(list_code(repo, script)) == [".gitignore", "train.py"]


def test_submodules_and_repositories_inside_travel_too(tmp_path: Path, repo: Path) -> None:
    other = tmp_path / "other"
    write(other, "lib.py", "ignored")
    (other / ".gitignore").write_text("ignored\n")
    git(other, "init", "-q")
    git(other, "add", "lib.py", ".gitignore")
    git(other, "commit", "-qm", "x")
    git(repo, "submodule", "add", "-q", str(other), "sub")
    write(repo, "sub/ignored", "nested/also.py", "train.py")
    git(repo / "nested", "init", "-q")
    expected = [".gitmodules", "nested/also.py", "sub/.gitignore", "sub/lib.py", "train.py"]
    assert names(list_code(repo, repo / "train.py")) == expected


def test_without_git_all_travels_but_junk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(
        *(tmp_path, "a.py", "deep/b.txt", "__pycache__/a.pyc", "c.pyc", "node_modules/x", ".venv/x", ".git/config"),
        *("myenv/pyvenv.cfg", "myenv/lib/x.py", "train.py"),
    )
    monkeypatch.setenv("PATH", "/nowhere")
    tree = list_code(tmp_path, script)
    assert names(tree) == ["a.py", "deep/b.txt", "train.py"]
    assert [warning for warning in tree.warnings if "git is not installed" in warning] == list(tree.warnings) != []


def test_looking_runs_nothing_that_a_repository_names(tmp_path: Path, repo: Path) -> None:
    script = write(repo, "train.py")
    program, ran = tmp_path / "monitor", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    git(repo, "config", "core.fsmonitor", str(program))
    git(repo, "status")
    assert ran.exists(), "git would"
    ran.unlink()
    assert names(list_code(repo, script)) == ["train.py"]
    assert not ran.exists()


def test_a_repository_that_git_refuses_is_a_warning(repo: Path) -> None:
    script = write(repo, "train.py")
    (repo / ".git/config").write_text("[broken")
    tree = list_code(repo, script)
    assert names(tree) == ["train.py"]
    assert "git can't list it" in tree.warnings[0]


@pytest.mark.parametrize("with_git", [True, False])
def test_links_stay_inside_or_become_what_they_lead_to(tmp_path: Path, repo: Path, with_git: bool) -> None:
    root = repo if with_git else tmp_path / "plain"
    outside = write(tmp_path / "outside", "weights/w.bin", "x.py")
    write(root, "pack/module.py", "ignored", "train.py")
    (root / ".gitignore").write_text("ignored\n")
    targets = {
        "pack/in": "../train.py",
        "folder": "pack",
        "absolute": str(root / "pack/module.py"),
        "round": f"../{root.name}/train.py",
        "file": str(outside),
        "outside": str(outside.parent),
        "broken": "none.py",
        "lost": "../none.py",
        "circle": "circle",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    tree = list_code(root, root / "train.py")
    kept = {"pack/in": "../train.py", "folder": "pack", "absolute": "pack/module.py", "round": "train.py"}
    kept_links = links(tree)
    assert kept_links.pop("circle", "circle") == "circle"  # a newer Python doesn't notice
    assert kept_links == {**kept, "broken": "none.py"}
    assert next(entry for entry in tree.entries if entry.path == "file").size == len("x.py")
    assert "outside" not in names(tree) and "outside/x.py" not in names(tree)
    warnings = "\n".join(tree.warnings)
    for name, what in (
        ("outside", "a link to a folder"),
        ("lost", "a link to nothing"),
        ("broken", "which doesn't exist"),
    ):
        assert f"{root / name}: a link" in warnings and what in warnings
    assert f"{root / 'file'}: a link out of {root}: the file behind it ({outside}) travels instead" in tree.warnings
    assert parse(tree.manifest) == tree.entries


def test_a_link_to_what_git_ignores_is_a_warning(repo: Path) -> None:
    script = write(repo, "data/x", "train.py")
    (repo / ".gitignore").write_text("data/\n")
    (repo / "input").symlink_to("data")
    assert list_code(repo, script).warnings == (f"{repo / 'input'}: a link to data, which doesn't exist or is ignored",)


def test_a_script_behind_links(tmp_path: Path, repo: Path) -> None:
    outside = write(tmp_path / "outside", "train.py")
    write(repo, "real/train.py", ".gitignore")
    (repo / ".gitignore").write_text("real/\n")
    (repo / "by_file").symlink_to("real/train.py")
    (repo / "by_folder").symlink_to("real")
    (repo / "away").symlink_to(outside.parent)
    always = [".gitignore", "by_file", "by_folder"]
    assert names(list_code(repo, repo / "by_file")) == [*always, "real/train.py"]
    assert names(list_code(repo, repo / "by_folder/train.py")) == [*always, "real/train.py"]
    assert names(list_code(repo, repo / "away/train.py")) == [".gitignore", "away/train.py", "by_file", "by_folder"]


def test_what_is_no_file_is_left_out_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(tmp_path, "train.py")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        tree = list_code(tmp_path, script)
    assert names(tree) == ["train.py"]
    assert [warning.partition(":")[0] for warning in tree.warnings] == [
        str(tmp_path / "fifo"),
        str(tmp_path / "socket"),
    ]


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(tmp_path, "secret", "train.py")
    plain_open = Path.open

    def refuse(path: Path, mode: str) -> object:  # root, who may run the tests, can read everything
        if path.name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return plain_open(path, mode)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RingmasterError, match=r"secret: can't be read \(Permission denied\)"):
        list_code(tmp_path, script)


def test_a_folder_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, scan = write(tmp_path, "closed/x", "train.py"), os.scandir

    def refuse(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(RingmasterError, match=r"closed: can't be read \(Permission denied\)"):
        list_code(tmp_path, script)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "log")
    times = [3]

    def grow(_: int) -> None:
        if times[0]:
            times[0] -= 1
            path.write_bytes(b"new")
            os.utime(path, ns=(0, times[0]))

    with pytest.raises(RingmasterError, match="changes while it is read"):
        file_tree.hashed_entry(tmp_path, "log", grow)
    times[0] = 2
    assert file_tree.hashed_entry(tmp_path, "log", grow).sha256 == hashlib.sha256(b"new").hexdigest()


@pytest.mark.parametrize("limit", ["LARGEST_BYTES", "MOST_FILES"])
def test_too_much_is_refused_with_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    script = write(
        tmp_path, *(f"a/{each}" for each in "12345678"), "b/1", "b/2", "b/3", "c/1", "c/2", "d/1", "train.py"
    )
    monkeypatch.setattr(code, limit, 5)
    most = (
        "a/ 8 files, b/ 3 files, c/ 2 files" if limit == "MOST_FILES" else "a/ 24 bytes, b/ 9 bytes, train.py 8 bytes"
    )
    with pytest.raises(RingmasterError, match=rf"{most}; .*\.gitignore.*DATA=") as raised:
        list_code(tmp_path, script)
    assert raised.value.exit_code == 2


def test_the_hash_is_that_of_names_modes_and_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    trees = [list_code(root, write(root, "b", "a/c", "train.py")) for root in (first, second)]
    assert trees[0].hash == trees[1].hash
    (second / "b").chmod(0o755)
    assert list_code(second, second / "train.py").hash != trees[0].hash
    (first / "b").write_text("c")
    assert list_code(first, first / "train.py").hash != trees[0].hash


def test_sizes_for_people(tmp_path: Path) -> None:
    tree = list_code(tmp_path, write(tmp_path, "train.py"))
    assert describe(tree) == "1 file, 8 bytes"
    shown = [amount(size) for size in (0, 999, 1000, 999_949, 999_950, 1_234_567, 5_600_000_000, 10**13)]
    assert shown == ["0 bytes", "999 bytes", "1.0 kB", "999.9 kB", "1.0 MB", "1.2 MB", "5.6 GB", "10,000.0 GB"]


def test_a_file_of_secrets_stays_here_also_by_another_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    (tmp_path / "keys").write_text("TOKEN=x")
    (tmp_path / "linked").symlink_to("keys")
    assert {"keys", "linked"} <= {entry.path for entry in list_code(tmp_path, script).entries}
    paths = {entry.path for entry in list_code(tmp_path, script, secrets=tmp_path / "linked").entries}
    assert paths == {"train.py"}


def test_of_a_module_its_file_travels_even_if_git_ignores_it_and_none_where_it_has_none(repo: Path) -> None:
    write(repo, "src/pkg/model.py", "src/pkg/train.py")
    (repo / ".gitignore").write_text("train.py\n")
    assert names(list_code(repo, repo / "src/pkg/train.py")) == [".gitignore", "src/pkg/model.py", "src/pkg/train.py"]
    assert names(list_code(repo, None)) == [".gitignore", "src/pkg/model.py"]
