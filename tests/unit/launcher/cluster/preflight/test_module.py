"""A module that only the image can have: refused where it surely has not, else a word about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.cluster.preflight.checks import run_checks
from launcher.cluster.preflight.module import missing_module, wanted_of_image
from launcher.image.labels import ImageFacts
from launcher.job.program import Program
from tests.unit.launcher.cluster.preflight.test_checks import NEEDS, candidate

IMAGE = ImageFacts(
    id="i",
    architecture="amd64",
    labels={
        "ringmaster.packages": '{"python": "3.11", "torch": "2.15", "scikit_learn": "1.9", "Open_Clip.torch": "3"}'
    },
)


@pytest.mark.parametrize(
    "module", ["torch.distributed.run", "sklearn.x", "open_clip.train", "openclip.x", "torch:torchrun"]
)
def test_what_the_image_may_have_is_no_matter(module: str) -> None:
    assert missing_module(module, IMAGE) == ("", False)


@pytest.mark.parametrize(
    ("module", "certain", "says"),
    [
        (
            "timm.train",
            True,
            "MODULE=timm.train: it is not in the code root, and the image has no package of that name",
        ),
        (
            "timm.train",
            True,
            "name the folder that holds timm with CODE=, or `make image REQUIREMENTS=<a file with timm>`",
        ),
        ("cv2.x", True, "`make image REQUIREMENTS=<a file with opencv-python-headless>`"),
        ("trian", False, "name the folder that holds trian with CODE=, or `make image REQUIREMENTS=<a file with the"),
        ("litgpt:litgpt", True, "MODULE=litgpt:litgpt: the image has no package litgpt: `make image REQUIREMENTS="),
    ],
)
def test_what_it_lacks_is_said_with_the_way(module: str, certain: bool, says: str) -> None:
    what, refuses = missing_module(module, IMAGE)
    assert says in what and refuses == certain
    named, _ = missing_module(module, IMAGE, "registry.example/x@sha256:1")
    assert "ringmaster_image" in named


def test_an_image_that_does_not_say_what_it_has_refuses_nothing() -> None:
    assert missing_module("timm.train", replace(IMAGE, labels={})) == ("", False)


def test_the_job_is_refused_or_warned() -> None:
    def report(module: str) -> tuple[int, int]:
        found = run_checks([candidate()], replace(NEEDS, module=module))
        return len(found.problems), len(found.warnings)

    assert [report(module) for module in ("", "timm.train", "trian", "torch.hub")] == [(0, 0), (1, 0), (0, 1), (0, 0)]


def test_only_what_is_not_the_users_or_pythons_own_is_wanted() -> None:
    root = Path("/r")
    assert wanted_of_image(Program(arguments=(), root=root)) == ""
    assert wanted_of_image(Program(arguments=(), root=root, module="pkg.train", module_file=root / "pkg.py")) == ""
    assert wanted_of_image(Program(arguments=(), root=root, module="json.tool")) == ""
    assert wanted_of_image(Program(arguments=(), root=root, module="timm.train")) == "timm.train"
