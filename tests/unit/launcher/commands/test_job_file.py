"""A job as a file: what it may say, what wins over it, and that a written one starts the same job."""

import re
import shlex
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.commands.flags import flags_of
from launcher.commands.job_file import to_toml, with_job_file
from launcher.commands.options import TrainOptions, parse_variables, split_arguments

EXAMPLE = ROOT / "docs" / "job.example.toml"
NASTY = [
    "--note",
    "it's $HOME",
    '"',
    "a\nb\r\t",
    "\\",
    "schön 训练",
    "'''",
    "#",
    "\x7f\x01",
    "{x}",
    "",
    " ",
    "$(touch x)",
]


def read(path: Path, text: str, **typed: str) -> TrainOptions:
    path.write_text(text, encoding="utf-8")
    return with_job_file(TrainOptions(job=str(path), **typed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job ü.toml"


def test_values_as_they_are_written_by_people(file: Path) -> None:
    options = read(
        file,
        """
        nodes = 2
        gpus = [0, 2]
        args = ["--lr", 0.1, "--note", "it's $HOME"]
        placeholders = false
        detach = true
        resume = "latest"
        nccl_debug = "INFO"
        [env]
        OMP_NUM_THREADS = 4
        A = "x y"
        """,
    )
    assert (options.nodes, options.gpus, options.detach, options.placeholders) == ("2", "0,2,", "1", "0")
    assert split_arguments(options.args) == ("--lr", "0.1", "--note", "it's $HOME")
    assert parse_variables(options.env) == {"OMP_NUM_THREADS": "4", "A": "x y"}
    assert (options.resume, options.nccl_debug, options.name) == ("latest", "INFO", "")


def test_strings_are_what_would_be_typed(file: Path) -> None:
    options = read(file, "nodes = '3'\nargs = '--lr 1 \"a b\"'\nenv = 'A=1'\ndetach = '1'\ngpus = 'all'\n")
    assert (options.nodes, options.args, options.env, options.detach) == ("3", '--lr 1 "a b"', "A=1", "1")


def test_what_is_typed_wins(file: Path) -> None:
    options = read(file, "nodes = 2\nargs = ['a']\n", nodes="1")
    assert (options.nodes, options.args) == ("1", "a")
    assert with_job_file(TrainOptions(nodes="1")) == TrainOptions(nodes="1")


def test_a_typed_program_takes_the_place_of_the_files(file: Path) -> None:
    options = read(file, 'module = "pkg.train"\ncode = "/pkg"\n', script="a.py")
    assert (options.script, options.module, options.code) == ("a.py", "", "/pkg")
    assert (options := read(file, 'script = "/a.py"\n', module="pkg")).module == "pkg"
    assert not options.script


def test_an_environments_folder_needs_no_slash(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv").mkdir()
    monkeypatch.chdir(tmp_path.parent)
    assert read(file, 'rank_python = ".venv"\n').rank_python == str(tmp_path / ".venv")
    monkeypatch.chdir(tmp_path)
    assert again(file, TrainOptions(rank_python=".venv")).rank_python == str(tmp_path / ".venv")
    assert again(file, TrainOptions(rank_python="python3.12")).rank_python == "python3.12"


def test_relative_paths_mean_the_files_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    text = 'script = "a/train.py"\ndata = "/data"\nsecrets = "~/token"\nrank_python = "../env"\nresume = "runs/x"\n'
    options = read(Path(file.name), text)
    assert options.script == str(file.parent / "a/train.py")
    assert (options.data, options.secrets) == ("/data", "~/token")
    assert options.rank_python == str(file.parent / "../env")
    assert options.resume == str(file.parent / "runs/x")
    assert read(file, "rank_python = 'python3.12'\ninventory = ''\n").rank_python == "python3.12"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("skript = 'x'", r"there is no 'skript'; did you mean script\?"),
        ("SCRIPT = 'x'", r"there is no 'SCRIPT'; did you mean script\?"),
        ("job = 'other.toml'", "there is no 'job'"),
        ("[train]\nnodes = 2", "there is no 'train'"),
        ("zzzzzz = 1", "there is no 'zzzzzz'; known: nodes, gpus"),
        ("nodes = true", "nodes must be a whole number"),
        ("nodes = 2.0", "nodes must be a whole number"),
        ("ranks = [1]", "ranks must be a whole number"),
        ("script = 5", "script must be a string"),
        ("script = ['a']", "script must be a string"),
        ("args = {a = 1}", "args must be a string, or an array"),
        ("args = [true]", "args has a value that is neither"),
        ("args = [nan]", "args has a value that is neither"),
        ("gpus = []", "gpus names no device"),
        ("env = ['A=1']", "env must be a string, or a table"),
        ("env = {A = true}", "env has a value that is neither"),
        ("detach = [1]", "detach must be true or false"),
        ("name = 2026-11-22", "name has a value that is neither"),
        ('args = ["a\\u0000b"]', "args holds a zero byte"),
        ("nodes = 2\nargs = [\n", r"is not TOML: .*line 3|is not TOML: .*end of document"),
        ("nodes = 1\nnodes = 2\n", r"is not TOML: .*line 2"),
    ],
)
def test_what_is_no_job(file: Path, text: str, message: str) -> None:
    with pytest.raises(RingmasterError, match=f"^JOB=.*{message}"):
        read(file, text)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"args = '\xff'")
    for name, message in (
        ("none", "No such file"),
        (".", r"did you mean .*/\./job\.toml\?"),
        ("job.toml", "not UTF-8"),
    ):
        with pytest.raises(RingmasterError, match=message):
            with_job_file(TrainOptions(job=f"{tmp_path}/{name}"))


def again(file: Path, options: TrainOptions, **how: Any) -> TrainOptions:
    """Return what a job's file says to the next one."""
    text = to_toml(options, **{"inventory": Path("/i/hosts.yml"), "continues": "", **how})
    return replace(read(file, text), job="")


def test_a_written_file_starts_the_same_job(file: Path) -> None:
    options = TrainOptions(
        nodes="2", gpus="0,2", ranks="4", script="/c/it's.py", args=shlex.join(NASTY), data="/d", secrets="/s e/token",
        launch_style="0", detach="1", limit="a,b", env=shlex.join(["A=x y", "B=ü='\"", "C="]), nccl_debug="INFO",
        rank_python="/e/bin/python", inventory="/i/hosts.yml",
    )  # fmt: skip
    read_again = again(file, options)
    assert split_arguments(read_again.args) == tuple(NASTY)
    assert parse_variables(read_again.env) == parse_variables(options.env)
    assert replace(read_again, args="", env="") == replace(options, args="", env="")


def test_a_name_and_a_dry_run_are_not_repeated(file: Path) -> None:
    options = again(file, TrainOptions(name="one", dry_run="1", job="/x.toml", resume="latest"), continues="one")
    assert options == TrainOptions(inventory="/i/hosts.yml", resume="one")


def test_paths_are_written_whole(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = again(file, TrainOptions(script="a b.py", rank_python="env/bin/python", data="~"))
    assert (options.script, options.rank_python) == (f"{tmp_path}/a b.py", f"{tmp_path}/env/bin/python")
    assert options.data == str(Path.home())


@given(some.lists(some.text(some.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))))
def test_every_word_survives(words: list[str]) -> None:
    text = to_toml(TrainOptions(args=shlex.join(words)), inventory=Path("/i"), continues="")
    assert tomllib.loads(text).get("args", []) == words


def test_bytes_that_toml_can_not_hold() -> None:
    with pytest.raises(UnicodeEncodeError):
        to_toml(TrainOptions(args="caf\udce9"), inventory=Path("/i"), continues="")


def test_the_example_names_what_there_is(file: Path) -> None:
    assert with_job_file(TrainOptions(job=str(EXAMPLE))).nodes == "2"
    text = re.sub(r"^# (?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    options = read(file, text)
    given_ = {field.name for field in fields(options) if getattr(options, field.name)}
    assert given_ >= {"script", "gpus", "rank_python", "env", "detach", "secrets"}
    assert {f"{name}" for name in flags_of("train")} >= {field.name for field in fields(TrainOptions)}
