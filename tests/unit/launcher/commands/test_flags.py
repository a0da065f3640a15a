"""One list of options: fab's flags, make's variables and the help of both come from it."""

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from launcher.base.paths import ROOT
from launcher.commands import image, jobs, provision
from launcher.commands.flags import OPTIONS, flags_of
from launcher.commands.options import TrainOptions

TAKEN_BY = {
    ("train",): TrainOptions,
    ("status",): jobs.Options,
    ("logs",): jobs.LogsOptions,
    ("stop",): jobs.Options,
    ("image",): image.ImageOptions,
    ("provision", "verify", "reset"): provision.Options,
}
"""The dataclasses, each with the targets that it holds all the options of."""
NEW = "[train]\nPORT            the rendezvous port; default: a free one\n"
STAND_IN = '#!/bin/sh\nprintf "%s\\0" "$@"\n'
"""In the place of fab: prints the words it is given, each ended by a zero byte."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing is installed: what make itself reads, and nothing else."""
    for name in ("Makefile", "pyproject.toml", "launcher/commands/options.txt", "launcher/commands/options.awk"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def stand_in(checkout: Path) -> Path:
    """The checkout, with a stand-in for fab and nothing to install."""
    for name, text in (("requirements/install.sh", "#!/bin/sh\n"), (".venv/bin/fab", STAND_IN)):
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text(text)
        (checkout / name).chmod(0o755)
    return checkout


def make(checkout: Path, *words: str | bytes, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command: list[Any] = ["make", "-s", "-C", str(checkout), *words]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, timeout=60)


def handed(checkout: Path, *words: str | bytes, **environment: str) -> dict[str, bytes]:
    """Return the flags that make called fab with, with their values."""
    done = make(checkout, *words, **environment)
    assert done.returncode == 0, done.stderr
    flags = [word.partition(b"=") for word in done.stdout.split(b"\0")[1:-1]]
    return {name.decode().removeprefix("--"): value for name, _, value in flags}


def add(checkout: Path, text: str) -> None:
    with (checkout / "launcher/commands/options.txt").open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize(("targets", "options"), TAKEN_BY.items())
def test_each_flag_is_a_field_of_its_targets_options(targets: tuple[str, ...], options: Any) -> None:
    names = {name for target in targets for name in flags_of(target) if not name.startswith("--")}
    assert {field.name for field in fields(options)} == names


def test_every_line_of_the_list_has_its_help() -> None:
    for line in OPTIONS.read_text().splitlines():
        if line and line[0] not in "[#":
            assert len(line.split(None, 1)) == 2, line


def test_a_new_option_reaches_fabs_flags_and_their_help(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "launcher", tmp_path / "launcher", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "fabfile.py", tmp_path)
    add(tmp_path, NEW)
    command = [str(Path(sys.executable).with_name("fab")), "--help", "train"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "--port=STRING" in done.stdout and "the rendezvous port" in done.stdout, done


def test_a_new_option_reaches_makes_variables_and_their_help(stand_in: Path) -> None:
    assert b"there is no variable 'PORT'" in make(stand_in, "train", "PORT=1").stderr
    add(stand_in, NEW)
    assert handed(stand_in, "train", "PORT=1 2")["port"] == b"1 2"
    assert "port" not in handed(stand_in, "status")
    assert b"PORT           the rendezvous port" in make(stand_in, "help-all").stdout
    assert b"PORT" not in make(stand_in, "help").stdout, "not everybody needs it"


def test_help_sets_nothing_up(checkout: Path) -> None:
    before = sorted(checkout.rglob("*"))
    shown = {target: make(checkout, target) for target in ("help", "help-all")}
    assert [(done.returncode, done.stderr) for done in shown.values()] == [(0, b"")] * 2
    assert sorted(checkout.rglob("*")) == before
    text = {target: done.stdout.decode() for target, done in shown.items()}
    version = subprocess.check_output([sys.executable, "-m", "launcher", "--version"], cwd=ROOT, text=True).split()[1]
    assert text["help"].startswith(f"Ringmaster {version}: ")
    assert make(checkout).stdout == shown["help"].stdout, "make alone prints the help"
    for name in ("provision", "train", "NODES", "ARGS", "INVENTORY"):
        assert f"\n  {name} " in text["help"]
    assert "LAUNCH_STYLE" not in text["help"]
    names = [line.split()[0].strip("*") for line in OPTIONS.read_text().splitlines() if line[:1].isupper()]
    assert all(f"\n  {name} " in text["help-all"] for name in names)
    assert max(map(len, text["help-all"].splitlines())) <= 120


VALUE = rb"""$$x $(shell touch made) ${HOME} `touch made` "a b" 'c' \ \n %s # * ~ --x=y;\\ """ + "ä".encode() + b"\xff"


@pytest.mark.parametrize("value", [VALUE, b"", b"a\nb", b"$", b"--help"])
def test_every_byte_of_a_value_arrives(stand_in: Path, value: bytes) -> None:
    flags = handed(stand_in, "train", b"ARGS=" + value)
    assert flags.pop("args") == value
    assert set(flags.values()) == {b""}, "the other variables were not set"
    assert not (stand_in / "made").exists()


def test_a_value_from_the_environment_arrives_too(stand_in: Path) -> None:
    flags = handed(stand_in, "train", ARGS="$(shell touch made) $$x", INVENTORY="mine.yml", NODES="3")
    assert (flags["args"], flags["inventory"], flags["nodes"]) == (b"$(shell touch made) $$x", b"mine.yml", b"3")
    assert not (stand_in / "made").exists()


def test_others_count_from_makes_command_line_only(stand_in: Path) -> None:
    add(stand_in, NEW)
    (stand_in / ".venv/bin/fab").write_text(f'{STAND_IN}echo "$NAME $PORT" >shell\n')
    foreign = {"NAME": "wsl", "PORT": "8080"}
    flags = handed(stand_in, "train", **foreign)
    assert (flags["name"], flags["port"]) == (b"", b"")
    assert (stand_in / "shell").read_text() == "wsl 8080\n", "the shell's own stay as they are"
    flags = handed(stand_in, "train", "NAME=mine", **foreign)
    assert flags["name"] == b"mine"
    flags = handed(stand_in, "image", BASE="x", CUDA="/usr/local/cuda")
    assert (flags["base"], flags["cuda"]) == (b"", b"")


def test_env_counts_from_the_command_line_only_and_stays_in_the_shells_environment(stand_in: Path) -> None:
    """POSIX shells read a start file that their ENV names."""
    (stand_in / ".venv/bin/fab").write_text(f'{STAND_IN}printf "%s" "${{ENV-unset}}" >shell\n')
    assert handed(stand_in, "train", ENV="/home/u/.shinit")["env"] == b""
    assert (stand_in / "shell").read_text() == "/home/u/.shinit"
    assert handed(stand_in, "train", "ENV=A='$$x' B=$(shell touch made)")["env"] == b"A='$$x' B=$(shell touch made)"
    assert (stand_in / "shell").read_text() == "unset"
    assert handed(stand_in, "train", "NCCL_DEBUG=INFO")["nccl-debug"] == b"INFO"


def test_nccl_debug_of_the_shell_stays_with_the_jobs_here(stand_in: Path) -> None:
    (stand_in / ".venv/bin/fab").write_text(f'{STAND_IN}printf "%s" "$NCCL_DEBUG" >nccl\n')
    assert handed(stand_in, "provision", NCCL_DEBUG="WARN")["nccl-debug"] == b""
    assert (stand_in / "nccl").read_text() == "WARN"
    assert handed(stand_in, "provision", "NCCL_DEBUG=INFO")["nccl-debug"] == b"INFO"


def test_a_variable_that_is_not_in_the_list_is_an_error(checkout: Path) -> None:
    done = make(checkout, "train", "NODE=3")
    assert done.returncode == 2 and b"there is no variable 'NODE'; known: INVENTORY LIMIT ASK NODES" in done.stderr
