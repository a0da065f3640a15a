"""What was typed becomes a request; what a resumed job was started with holds unless given anew."""

from pathlib import Path

import pytest

from launcher.errors import RingmasterError
from launcher.job import Earlier, JobFolder
from launcher.options import TrainOptions, inventory_path, switch, to_request
from launcher.program import ROOT

STYLE = "import argparse\nargparse.ArgumentParser().add_argument('--local_rank')\n"


@pytest.fixture
def from_job(tmp_path: Path) -> Earlier:
    (tmp_path / "script.py").write_text(STYLE)
    return Earlier(
        folder=JobFolder(path=tmp_path),
        script=str(tmp_path / "script.py"),
        arguments=("--lr", "a b"),
        data=str(tmp_path),
        launch_style="",
    )


def test_a_resumed_job_inherits_script_arguments_data_and_launch_style(from_job: Earlier, tmp_path: Path) -> None:
    request = to_request(TrainOptions(), from_job)
    assert (request.program.script, request.program.arguments) == (tmp_path / "script.py", ("--lr", "a b"))
    assert request.data == tmp_path
    assert request.program.local_rank_flag == "", "it was started with LAUNCH_STYLE=0, or so it seems"


def test_what_is_given_anew_wins(from_job: Earlier, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(STYLE)
    request = to_request(TrainOptions(script=str(tmp_path / "other.py"), args="--lr 2"), from_job)
    assert (request.program.script, request.program.arguments) == (tmp_path / "other.py", ("--lr", "2"))
    assert request.program.local_rank_flag == "--local_rank"


def test_without_a_script_it_is_the_trainer() -> None:
    program = to_request(TrainOptions(args="--epochs 1"), None).program
    assert (program.script, program.root, program.interpreter_words) == (None, ROOT, ("-u", "-m", "trainer"))


@pytest.mark.parametrize("options", [{"launch_style": "yes"}, {"data": "/no/such"}, {"script": "/no/such.py"}])
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(RingmasterError):
        to_request(TrainOptions(**options), None)


def test_switches_and_the_default_inventory() -> None:
    assert [switch("X", text) for text in ("", "0", "1")] == [False, False, True]
    with pytest.raises(RingmasterError, match="X=yes"):
        switch("X", "yes")
    assert inventory_path("mine.yml") == Path("mine.yml")
