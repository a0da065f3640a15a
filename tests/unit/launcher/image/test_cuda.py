"""What an image's CUDA asks of drivers and cards."""

import json
import subprocess
import sys

import pytest

from launcher.image.content import LOCKS
from launcher.image.cuda import card_problem, driver_problem, driver_prospect
from launcher.on_node import image_contents


@pytest.mark.parametrize(
    ("card", "code", "fits"),
    [
        ("8.9", "sm_86", True),  # an L4
        ("8.6", "sm_89", False),
        ("8.0", "sm_75", False),
        ("7.5", "sm_75", True),
        ("7.0", "sm_75", False),  # a V100
        ("12.1", "sm_120", True),
        ("12.0", "sm_100", False),
        ("9.0", "compute_80", True),
        ("7.5", "compute_80", False),
        ("12.0", "compute_90", True),
        ("9.0", "sm_90a", True),
        ("10.0", "sm_90a", False),
        ("10.3", "sm_100a", False),
        ("10.3", "sm_100f", True),
        ("12.0", "sm_100f", False),
        ("10.0", "compute_90a", False),
        ("12.0", "compute_100f", False),
        ("8.0", "gfx90a", False),
    ],
)
def test_which_code_a_card_runs(card: str, code: str, fits: bool) -> None:
    assert (card_problem(card, [code], "13.2") == "") == fits


@pytest.mark.parametrize(("card", "there"), [("", ["sm_80"]), ("[N/A]", ["sm_80"]), ("7.0", [])])
def test_what_says_nothing_refuses_nothing(card: str, there: list[str]) -> None:
    assert card_problem(card, there, "13.2") == ""


@pytest.mark.parametrize(
    ("card", "there", "cuda", "way"),
    [
        ("7.0", ["sm_75", "sm_80"], "13.2", ": `make image CUDA=12`, choose"),
        ("6.0", ["sm_75", "sm_80"], "13.2", ": choose"),
        ("6.0", ["sm_70"], "12.8", ": choose"),
        ("12.0", ["sm_70", "sm_90"], "12.8", ": `make image CUDA=13`, choose"),
    ],
)
def test_the_way_out_is_one_that_helps(card: str, there: list[str], cuda: str, way: str) -> None:
    assert way in card_problem(card, there, cuda)


def test_the_prospect_of_a_driver_before_there_is_an_image() -> None:
    assert set(LOCKS) == {"12", "13"}, "another lock wants another line here"
    assert driver_prospect("580.65.06") == ("", False)
    assert driver_prospect("535.183.01") == (driver_problem("535.183.01", "13"), False)
    assert driver_prospect("470.82.01")[1]
    assert driver_prospect("") == driver_prospect("[N/A]") == ("", False)


def test_torch_itself_says_what_it_has_code_for() -> None:
    done = subprocess.run([sys.executable, image_contents.__file__], capture_output=True, text=True, check=True)
    code = json.loads(done.stdout)["architectures"].split()
    import torch

    if torch.version.cuda:
        assert "sm_80" in code, "also where there is no GPU"
    assert card_problem("8.9", code, "13.2") == ""
