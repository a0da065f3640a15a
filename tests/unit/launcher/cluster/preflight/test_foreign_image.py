"""An image that `make image` did not build: asked once what is in it, and refused with what it lacks."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from launcher.cluster.preflight.foreign_image import look_inside, parse, unfit
from launcher.image.labels import Contents, ImageFacts

IMAGE = ImageFacts(id="sha256:i", architecture="amd64")
WHOLE = {
    "python": "/usr/bin/python3",
    "site": "/usr/lib/python3/dist-packages",
    "packages": {"python": "3.12.3", "torch": "2.15.0", "torchvision": "0.29.2", "numpy": "2.1"},
    "torch": "2.15.0",
    "torchrun": True,
    "cuda": "13.2",
    "problem": "",
    "capabilities": "compute,utility",
    "architectures": "sm_80 compute_90",
}


def a_program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(words: tuple[str, ...], programs: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_asked_once_and_without_its_entry_point_and_the_network(tmp_path: Path) -> None:
    programs, jobs = tmp_path / "bin", tmp_path / "jobs"
    a_program(programs, "docker", f"echo \"$@\" >>{tmp_path}/asked; echo '{json.dumps(WHOLE)}'")
    command = look_inside(IMAGE, str(jobs), "1000:1000")
    assert {"--network=none", "--entrypoint=/bin/sh", "--user=1000:1000", "--rm"} <= set(command)
    first, second = run(command, programs), run(command, programs)
    assert parse(first.stdout) == parse(second.stdout) == Contents(**WHOLE)  # type: ignore[arg-type]
    assert (tmp_path / "asked").read_text().count("run --rm") == 1
    other = look_inside(ImageFacts(id="sha256:j", architecture="amd64"), str(jobs), "1000:1000")
    assert run(other, programs).returncode == 0 and (tmp_path / "asked").read_text().count("run --rm") == 2


def test_an_answer_that_never_came_is_not_kept(tmp_path: Path) -> None:
    programs, jobs = tmp_path / "bin", tmp_path / "jobs"
    a_program(programs, "docker", "echo 'half of'; echo 'no /bin/sh' >&2; exit 127")
    done = run(look_inside(IMAGE, str(jobs), "1000:1000"), programs)
    assert done.returncode == 127 and "no /bin/sh" in done.stderr
    assert list((jobs / ".images").iterdir()) == []
    with pytest.raises(ValueError):
        parse(done.stdout)


def test_the_python_that_has_torch_is_asked(tmp_path: Path) -> None:
    """An image may have the system's Python and another one."""
    programs = tmp_path / "bin"
    a_program(programs, "python", 'case "$2" in *u.find_spec*) exit 1;; *) echo plain;; esac')
    a_program(programs, "python3", 'case "$2" in *u.find_spec*) exit 0;; *) printf %s "$2";; esac')
    command = look_inside(IMAGE, str(tmp_path), "1:1")
    inside = ("/bin/sh", *command[command.index("-c", 4) :])
    assert run(inside, programs).stdout == command[-1]
    (programs / "python3").unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    only = subprocess.run(inside, env={"PATH": str(programs)}, capture_output=True, text=True, check=True, timeout=60)
    assert only.stdout == "plain\n", "it says what is wrong with its torch"
    none = subprocess.run(inside, env={"PATH": str(empty)}, capture_output=True, text=True, check=True, timeout=60)
    assert parse(none.stdout) == Contents()


def test_what_importing_prints_is_no_answer() -> None:
    assert parse(f"a greeting\n{json.dumps(WHOLE)}\n").torch == "2.15.0"
    for text in ("", "greeting", "[1]", json.dumps({"python": "x"})):
        with pytest.raises(ValueError):
            parse(text)


@pytest.mark.parametrize(
    ("changed", "script", "trainer"),
    [
        ({}, "", ""),
        ({"python": ""}, "has no Python", "has no Python"),
        (
            {"torch": "", "problem": "ImportError: libx"},
            "no torch that can be imported (ImportError: libx)",
            "no torch",
        ),
        ({"torchrun": False}, "has no torchrun", "has no torchrun"),
        ({"torch": "2.9.1+cu128"}, "", "has torch 2.9.1+cu128; the bundled trainer needs 2.10 or newer"),
        ({"torch": "3.0.0a0+git1"}, "", ""),
        ({"packages": {"python": "3.10.2", "torchvision": "1", "numpy": "1"}}, "", "has Python 3.10.2; the bundled"),
        ({"packages": {"python": "3.12.0", "numpy": "1"}}, "", "lacks torchvision"),
    ],
)
def test_what_it_lacks_is_named(changed: dict[str, object], script: str, trainer: str) -> None:
    contents = parse(json.dumps({**WHOLE, **changed}))
    for bundled, expected in ((False, script), (True, trainer)):
        said = "; ".join(unfit(contents, bundled=bundled))
        assert expected in said and bool(said) == bool(expected)
