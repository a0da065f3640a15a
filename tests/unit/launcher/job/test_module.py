"""A program that is named as Python names it: found without importing it, or refused with the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.job.module import user_module

STYLE = "import argparse\nargparse.ArgumentParser().add_argument('--local_rank')\n"


def write(root: Path, *names: str, text: str = "print(__name__)\n") -> Path:
    """Write files with the same text; return the last one's path."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / names[-1]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("train", "train.py"),
        ("pkg.train", "pkg/train.py"),
        ("pkg.train", "src/pkg/train.py"),
        ("pkg.sub.train", "src/pkg/sub/train.py"),
        ("pkg", "pkg/__main__.py"),
        ("übung.训练", "übung/训练.py"),
        ("my-pkg.my-train", "my-pkg/my-train.py"),
    ],
)
@pytest.mark.parametrize("init", [True, False])
def test_its_file_is_the_one_that_python_runs(tmp_path: Path, name: str, file: str, init: bool) -> None:
    path = write(tmp_path / "my code", file)
    for folder in path.parents:
        if init and folder.name not in {"src", "my code"} and folder.is_relative_to(tmp_path / "my code"):
            (folder / "__init__.py").touch()
    program = user_module(name, tmp_path / "my code", ("--x",))
    assert (program.module, program.file, program.bundled) == (name, path, False)
    assert program.importable == (("", "src") if file.startswith("src") else ("",))
    words = [sys.executable, *program.words(program.root)]
    paths = ":".join(str(program.root / folder) for folder in program.importable)
    done = subprocess.run(words, cwd=program.root, env={"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.stdout == "__main__\n", done.stderr


def test_the_root_comes_before_its_src_and_a_package_before_a_module(tmp_path: Path) -> None:
    write(tmp_path, "src/one/__init__.py", "src/one/train.py")
    write(tmp_path, "one/__init__.py", "one/train.py", "one.py")
    assert user_module("one.train", tmp_path, ()).file == tmp_path / "one/train.py"
    write(tmp_path, "src/two/train.py", "two/other.py")
    assert user_module("two.train", tmp_path, ()).file == tmp_path / "src/two/train.py", "one package in two folders"


def test_a_module_that_is_not_here_may_be_the_environments(tmp_path: Path) -> None:
    write(tmp_path, "wandb/run-1/log.txt")
    for name in ("torchvision.datasets", "wandb.cli", "accelerate:accelerate", "open-clip.torch:a.b-c"):
        program = user_module(name, tmp_path, ())
        assert (program.module, program.file, program.root) == (name, None, tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pkg.trian", "there is no module pkg.trian; pkg has train"),
        ("pkg.train.more", "there is no module pkg.train.more"),
        ("pkg", "without a __main__.py: name one of its modules, such as MODULE=pkg.train"),
        ("pkg/train.py", "MODULE=pkg.train, or a file as SCRIPT="),
        ("./src/pkg/train.py", "MODULE=pkg.train,"),
        ("pkg..train", "such as pkg.train"),
        ("-c", "such as pkg.train"),
        ("a b", "such as pkg.train"),
        ("pkg:a:b", "accelerate:accelerate"),
        ("pkg:", "accelerate:accelerate"),
        ("pkg:it's", "accelerate:accelerate"),
        ("pkg.broken", "not Python"),
    ],
)
def test_what_can_not_be_run_is_refused_with_the_way(tmp_path: Path, name: str, says: str) -> None:
    write(tmp_path, "src/pkg/__init__.py", "src/pkg/model.py", text="")
    write(tmp_path, "src/pkg/train.py", text="if __name__ == '__main__': pass\n")
    write(tmp_path, "src/pkg/broken.py", text="not python at all\n")
    with pytest.raises(RingmasterError, match="MODULE") as refused:
        user_module(name, tmp_path, ())
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_a_root_that_pythons_path_can_not_hold_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a:b", "train.py")
    with pytest.raises(RingmasterError, match="colon"):
        user_module("train", tmp_path / "a:b", ())


@pytest.mark.parametrize(
    "imports", ["from .options import x", "from pkg.options import x", "from pkg import options", "import pkg.options"]
)
def test_launch_style_is_found_behind_its_imports(tmp_path: Path, imports: str) -> None:
    write(tmp_path, "src/pkg/options.py", text=STYLE)
    write(tmp_path, "src/pkg/__init__.py", text="")
    write(tmp_path, "src/pkg/train.py", text=f"{imports}\n")
    assert user_module("pkg.train", tmp_path, ()).local_rank_flag == "--local_rank"
    assert user_module("pkg.train", tmp_path, (), launch_style="0").local_rank_flag == ""
    assert user_module("torchvision.x", tmp_path, (), launch_style="1").local_rank_flag == "--local-rank"


def test_a_console_script_runs_as_its_own_file_does(tmp_path: Path) -> None:
    write(tmp_path, "tool-1.0.dist-info/METADATA", text="Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
    write(tmp_path, "tool-1.0.dist-info/entry_points.txt", text="[console_scripts]\nrun-it = tool:cli.main\n")
    write(tmp_path, "tool.py", text="import sys\nclass cli:\n    def main():\n        print(sys.argv); return 3\n")

    def run(script: str) -> "subprocess.CompletedProcess[str]":
        words = user_module(f"tool:{script}", tmp_path / "elsewhere", ()).words(tmp_path)
        command = [sys.executable, *words, "--lr", "1"]
        return subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)

    done = run("run-it")
    assert (done.returncode, done.stdout) == (3, "['run-it', '--lr', '1']\n"), done.stderr
    done = run("nope")
    assert (done.returncode, done.stderr) == (1, "tool has no console script nope; it has: run-it\n")
