"""The user's script: found, checked, its style and code root recognized."""

from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.job import program

LAUNCH_STYLE = "import argparse\np = argparse.ArgumentParser()\np.add_argument('{flag}', type=int)\n"


def script(folder: Path, text: str | bytes, name: str = "train.py") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_missing_folder_and_not_python(tmp_path: Path) -> None:
    for path in (tmp_path / "none.py", tmp_path):
        with pytest.raises(RingmasterError, match="SCRIPT"):
            program.user_script(path, ())
    for text in ("echo 'hello' && ls -l | wc", b"\x7fELF\x00\x01", b"\xff\xfe\xff"):
        with pytest.raises(RingmasterError, match="not Python"):
            program.user_script(script(tmp_path, text), ())


def test_the_code_root_is_the_git_top_level_else_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "deep er"
    inner.mkdir(parents=True)
    assert program.user_script(script(inner, ""), ()).root == inner
    (tmp_path / "repo" / ".git").mkdir()
    assert program.user_script(script(inner, ""), ()).root == tmp_path / "repo"


@pytest.mark.parametrize("flag", ["--local-rank", "--local_rank"])
def test_launch_style_is_detected_with_its_spelling(tmp_path: Path, flag: str) -> None:
    path = script(tmp_path, LAUNCH_STYLE.format(flag=flag))
    assert program.user_script(path, ()).local_rank_flag == flag
    assert program.user_script(path, (), launch_style="0").local_rank_flag == ""


def test_launch_style_in_a_module_beside_the_script(tmp_path: Path) -> None:
    script(tmp_path, LAUNCH_STYLE.format(flag="--local_rank"), "options.py")
    script(tmp_path, "import train", "utils.py")  # a cycle ends
    path = script(tmp_path, "from options import parser\nimport os, utils")
    assert program.user_script(path, ()).local_rank_flag == "--local_rank"


def test_launch_style_in_a_package_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "options").mkdir()
    script(tmp_path / "options", LAUNCH_STYLE.format(flag="--local_rank"), "parsing.py")
    path = script(tmp_path, "from options.parsing import parser")
    assert program.user_script(path, ()).local_rank_flag == "--local_rank"


def test_launch_style_behind_a_relative_import(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    script(tmp_path / "pack", "from .options import get", "__init__.py")
    script(tmp_path / "pack", LAUNCH_STYLE.format(flag="--local_rank"), "options.py")
    assert program.user_script(script(tmp_path, "from pack import get"), ()).local_rank_flag == "--local_rank"


def test_a_neighbour_that_cannot_be_parsed_does_not_matter(tmp_path: Path) -> None:
    script(tmp_path, "print 'python 2'", "old.py")
    path = script(tmp_path, "try:\n    import old\nexcept SyntaxError:\n    pass\n")
    assert program.user_script(path, ()).local_rank_flag == ""


def test_a_mention_is_no_declaration(tmp_path: Path) -> None:
    path = script(tmp_path, "# --local_rank\nx = '--local-rank'\nimport os\nos.environ['LOCAL_RANK']\n")
    assert program.user_script(path, ()).local_rank_flag == ""
    assert program.user_script(path, (), launch_style="1").local_rank_flag == "--local-rank"


def test_any_source_encoding_and_a_byte_order_mark(tmp_path: Path) -> None:
    for text in (b"# -*- coding: latin-1 -*-\nx = '\xfc'\n", b"\xef\xbb\xbfx = 1\n"):
        assert program.user_script(script(tmp_path, text, "schön 训练.py"), ()).script == tmp_path / "schön 训练.py"


@pytest.mark.parametrize("flag", ["--local-rank", "--local_rank"])
@pytest.mark.parametrize(
    "text", ["", LAUNCH_STYLE.format(flag="--local-rank"), LAUNCH_STYLE.format(flag="--local_rank")]
)
def test_either_spelling_can_be_forced(tmp_path: Path, flag: str, text: str) -> None:
    assert program.user_script(script(tmp_path, text), (), launch_style=flag).local_rank_flag == flag


def test_one_is_the_spelling_found(tmp_path: Path) -> None:
    path = script(tmp_path, LAUNCH_STYLE.format(flag="--local_rank"))
    assert program.user_script(path, (), launch_style="1").local_rank_flag == "--local_rank"


@pytest.mark.parametrize(
    "text",
    [
        "import click\n@click.option('--local_rank', type=int)\ndef main(local_rank): pass\n",
        "from absl import flags\nflags.DEFINE_integer('local_rank', 0, 'torch gives it')\n",
    ],
)
def test_other_ways_to_declare_it(tmp_path: Path, text: str) -> None:
    assert program.user_script(script(tmp_path, text), ()).local_rank_flag == "--local_rank"
