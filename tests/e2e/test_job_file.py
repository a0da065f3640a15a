"""A job as a file: written by hand, and the one that every job leaves, which starts it again."""

from collections.abc import Callable
from pathlib import Path

from tests.e2e.jobs import Trainer

Script = Callable[..., Path]

SAYS = """
import json, os, sys
print(ascii([sys.argv[1:], os.environ["A"], len(os.environ["TOKEN_OF_MINE"]), os.environ["WORLD_SIZE"]]), flush=True)
open(os.environ["RUN_DIR"] + "/own", "w").close()
"""
JOB = r"""
nodes = 1
ranks = 2
script = "script.py"
args = ["--note", "it's $HOME", "a\nb", "schön $$ $(touch x)", ""]
secrets = "token.env"
env = { A = "x y" }
"""


def test_a_job_by_its_file_and_again_by_the_one_it_left(train: Trainer, script: Script, tmp_path: Path) -> None:
    folder = script(SAYS).parent
    (folder / "token.env").write_text("TOKEN_OF_MINE=geheim-geheim\n")
    (folder / "job.toml").write_text(JOB)
    first = train(JOB=folder / "job.toml", NODES="")
    assert first.exit_code == 0, first.output
    said = first.lines_of("node1:1")
    assert eval(said[0]) == [["--note", "it's $HOME", "a\nb", "schön $$ $(touch x)", ""], "x y", 13, "2"]  # noqa: S307
    left = first.folder / "job.toml"
    assert "geheim" not in left.read_text() and "token.env" in left.read_text()
    again = train(JOB=left, NODES="")
    assert (again.exit_code, again.lines_of("node1:1")) == (0, said), again.output
    assert again.name != first.name
    third = train(JOB=left, NODES="", RANKS=1, ARGS="typed")
    assert eval(third.lines_of("node1:0")[0])[::3] == [["typed"], "1"], third.output  # noqa: S307


def test_a_slip_in_the_file_starts_nothing(train: Trainer, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("scrip = 'x.py'\n")
    job = train(JOB=tmp_path / "job.toml")
    assert (job.exit_code, job.folder.exists()) == (2, False)
    assert "there is no 'scrip'; did you mean script?" in job.output
