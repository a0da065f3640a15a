"""A requirements file beside a script, against what an image has."""

import hashlib
import json
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.cluster.preflight.requirements import Requirements, find_requirements, missing_packages
from launcher.image.labels import ImageFacts
from launcher.job.program import Program

PACKAGES = {"torch": "2.15.0+cu132", "ruamel.yaml": "0.18.6", "Pillow": "11.0rc1", "old": "not a version"}
LOCK = Path("/code/requirements.txt")


def image(requirements: str = "", **more: str) -> ImageFacts:
    labels = {"ringmaster.packages": json.dumps(PACKAGES | more), "ringmaster.requirements": requirements}
    return ImageFacts(id="sha256:i", architecture="amd64", labels=labels)


def lacks(text: str, there: ImageFacts | None = None) -> str:
    return missing_packages(Requirements(path=LOCK, content=text.encode()), there or image())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but words\n\n",
        "torch==2.15.0  # the local part doesn't count\nRuamel_YAML>=0.18\npillow>=10\n",
        "torch >= 2, \\\n  < 3\r\n",
        "\ufefftorch\n",
        "winonly; sys_platform == 'win32'\n",
        "armonly; platform_machine == 'aarch64'\n",
    ],
)
def test_what_is_there(text: str) -> None:
    assert lacks(text) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pandas\n", "asks for pandas: `make image REQUIREMENTS=/code/requirements.txt`"),
        ("torch==2.14.0\n", "torch==2.14.0 (the image has 2.15.0+cu132)"),
        ("a\nb\nc\nd\ne\n", "a, b, c and 2 more:"),
        ("old>=1\n", "old>=1 (the image has not a version)"),
        ("linuxonly; sys_platform == 'linux'\n", "linuxonly"),
        ("-r base.txt\nwidget\n", "asks for widget:"),
    ],
)
def test_what_is_missing_is_named_with_the_command(text: str, reason: str) -> None:
    assert reason in lacks(text)


@pytest.mark.parametrize(
    "line",
    [
        "-r base.txt",
        "--index-url there",
        "-e .",
        "./local",
        "torch @ https://example.org/torch.whl",
        "torch==2.15.0 --hash=sha256:00",
        "torch[extra]",
        "torch; python_version < '3.12'",
        "torch; platform_release > '5'",
    ],
)
def test_what_cannot_be_judged_needs_an_image_made_from_this_very_file(line: str) -> None:
    assert "can't be compared" in lacks(line)
    assert lacks(line, image(hashlib.sha256(line.encode()).hexdigest())) == ""


def test_an_image_may_say_which_python_it_has() -> None:
    line = "tomli; python_version < '3.11'"
    assert lacks(line, image(python="3.11.2")) == ""
    assert "asks for tomli" in lacks(line, image(python="3.10.1"))


def test_an_image_without_a_list_of_packages_lacks_all() -> None:
    for broken in ("", "[]", "{"):
        there = ImageFacts(id="i", architecture="amd64", labels={"ringmaster.packages": broken})
        assert "asks for torch" in lacks("torch", there)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    program = Program(arguments=(), root=tmp_path, script=folder / "train.py")
    assert find_requirements(program) is None
    (tmp_path / "requirements.txt").write_text("far")
    assert find_requirements(program) == Requirements(path=tmp_path / "requirements.txt", content=b"far")
    (folder / "requirements.txt").write_text("near")
    assert find_requirements(program) == Requirements(path=folder / "requirements.txt", content=b"near")
    assert find_requirements(Program(arguments=(), root=tmp_path)) is None, "the bundled trainer's are in the image"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.symlink_to(path)
    with pytest.raises(RingmasterError, match="can't be read"):
        find_requirements(Program(arguments=(), root=tmp_path, script=tmp_path / "train.py"))


def test_a_modules_is_in_its_code_root(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("mine")
    program = Program(arguments=(), root=tmp_path, module="torchvision.train")
    assert find_requirements(program) == Requirements(path=tmp_path / "requirements.txt", content=b"mine")
