"""A module that a script lacks: which package has it, on which kind of node, and what is never to be installed."""

import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from launcher.follow.cause.failure import Failure
from launcher.follow.cause.missing_module import explained, hint
from launcher.follow.cause.suspects import root_cause
from tests.support.ends import end
from tests.support.plans import DIGEST, cluster_plan, facts, plan_for

INSTALL = ".venv/bin/python -m pip install"

# What was printed in public threads; the package that has the module, where that is certain.
TEXTS = [
    (
        "NVlabs/instant-ngp/issues/168",
        "    import cv2\nModuleNotFoundError: No module named 'cv2'",
        "opencv-python-headless",
    ),
    (
        "yongqyu/st-gcn-pytorch/issues/13",
        '  File "metric.py", line 2, in <module>\n    from sklearn.metrics import accuracy_score\n'
        "ModuleNotFoundError: No module named 'sklearn'",
        "scikit-learn",
    ),
    ("microsoft/SGN/issues/8", "ImportError: No module named 'sklearn'", "scikit-learn"),
    ("WongKinYiu/yolov7/issues/1420", "ModuleNotFoundError: No module named 'yaml'", "pyyaml"),
    (
        "tonytan48/KD-DocRE/issues/5",
        '  File "train.py", line 13, in <module>\n    from utils import set_seed, collate_fn\n'
        "ModuleNotFoundError: No module named 'utils'",
        "",
    ),
]


def test_the_environment_is_ours_wherever_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv").mkdir()
    monkeypatch.chdir(tmp_path)
    advice = hint("yaml", None, on_cluster=False)
    assert advice and f"{ROOT}/{INSTALL} pyyaml" in advice


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script two folders below its code root."""
    (tmp_path / ".git").mkdir()
    path = tmp_path / "tools" / "train.py"
    path.parent.mkdir()
    path.touch()
    return path


def lacking(module: str, script: Path | None = None, *, on_cluster: bool = True) -> str:
    return hint(module, script, on_cluster=on_cluster) or ""


def test_what_the_users_own_python_lacks_is_installed_there() -> None:
    failure = root_cause(
        [end(0, lines=("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'timm'"))]
    )
    assert failure is not None
    found = explained(failure, replace(plan_for(facts(1)), rank_python="/my env/bin/python")).hint or ""
    assert found.endswith("'/my env/bin/python' -m pip install timm")


@pytest.mark.parametrize(("thread", "lines", "package"), TEXTS)
def test_the_package_is_named_where_it_is_known(thread: str, lines: str, package: str) -> None:
    failure = root_cause([end(0, lines=("Traceback (most recent call last):", *lines.split("\n")))])
    assert thread and failure is not None
    here = explained(failure, plan_for(facts(1))).hint or ""
    there = explained(failure, cluster_plan(1, script=True)).hint or ""
    assert here.endswith(f"{INSTALL} {package or '<its name>'}")
    what = package or "the package that has the module 'utils'"
    assert f"add {what} to a requirements.txt, then make image REQUIREMENTS=" in there and ".venv" not in there


def test_into_an_image_of_the_users_own_it_comes_by_other_ways() -> None:
    failure = failed("ModuleNotFoundError: No module named 'yaml'")
    said = explained(failure, cluster_plan(1, script=True, site="/s")).hint or ""
    assert said.startswith("the image lacks it: put pyyaml into your image and name its new digest (ringmaster_image)")
    assert f"take ringmaster_image out of the inventory: then `make image BASE={DIGEST} REQUIREMENTS=" in said


def test_it_counts_too_where_the_script_ended_by_itself_after_it() -> None:
    line = "ModuleNotFoundError: No module named 'yaml'"
    assert "pyyaml" in (explained(failed("exited with code 3: sorry", line, "sorry"), cluster_plan()).hint or "")
    assert explained(failed("ValueError: no"), cluster_plan()).hint is None
    assert explained(failed("exited with code 3", "no module named apex; going on"), cluster_plan()).hint is None


def test_a_name_that_nobody_knows_is_not_taken_for_a_packages() -> None:
    assert "add the package that has the module 'clip' to" in lacking("clip")
    assert lacking("clip", on_cluster=False).endswith("pip install <its name>")


def test_a_package_that_this_machine_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "add paramiko to" in lacking("paramiko")
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda _self, name: "{}" if "direct" in name else "")
    assert "add the package that has the module 'paramiko' to" in lacking("paramiko"), "it came from a folder"


def test_a_part_of_a_package_that_is_there() -> None:
    said = lacking("transformers.nowhere")
    assert "the package, or its version, that has 'transformers.nowhere' ('transformers' is there without it)" in said


@pytest.mark.parametrize("module", ["_lzma", "_C", "tkinter", "sqlite3.dbapi2"])
def test_what_belongs_to_python_or_to_nobody_gets_no_advice(module: str) -> None:
    assert hint(module, None, on_cluster=True) is None


class TestOwnCode:
    @pytest.mark.parametrize(
        "place", ["src/mine/__init__.py", "src/mine.py", "mine.py", "a/b/mine/model.py", "mine/data/operation.py"]
    )
    def test_is_never_to_be_installed(self, script: Path, tmp_path: Path, place: str) -> None:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        for on_cluster in (True, False):
            said = lacking("mine.model", script, on_cluster=on_cluster)
            assert "pip" not in said and "REQUIREMENTS" not in said
            assert said.startswith("'mine' is your own code (")

    def test_below_the_code_root_or_its_src_that_is_to_be_named(self, script: Path, tmp_path: Path) -> None:
        for folder in (tmp_path / "src", tmp_path):
            (folder / "mine").mkdir(parents=True)
            (folder / "mine" / "__init__.py").touch()
            said = lacking("mine", script)
            assert said.endswith(
                f"beside train.py only: add CODE={tmp_path}, or start it as MODULE=tools.train CODE={tmp_path}"
            )
        assert "git ignore" in (hint("mine", script, root=tmp_path, on_cluster=True) or ""), "it was named"
        assert "which has no 'model'" in (hint("mine.model", None, root=tmp_path, on_cluster=True) or "")

    @pytest.mark.parametrize("place", ["torchtitan/__init__.py", "src/torchtitan/__init__.py", "torchtitan.py"])
    def test_above_a_script_that_is_in_no_repository(self, tmp_path: Path, place: str) -> None:
        for name in (place, "my scripts/train.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        said = lacking("torchtitan", tmp_path / "my scripts" / "train.py", on_cluster=False)
        assert "pip" not in said and said.endswith(f"beside train.py only: add CODE={tmp_path}"), said

    def test_above_the_packages_that_the_script_is_in(self, tmp_path: Path) -> None:
        script = tmp_path / "torchtitan" / "experiments" / "mine" / "train.py"
        script.parent.mkdir(parents=True)
        script.touch()
        for folder in (tmp_path / "torchtitan", tmp_path / "torchtitan" / "experiments"):
            (folder / "__init__.py").touch()
        said = lacking("torchtitan", script, on_cluster=False)
        assert f"MODULE=torchtitan.experiments.mine.train CODE={tmp_path}" in said
        (script.parent / ".git").mkdir()
        assert "CODE=" not in lacking("torchtitan", script), "a repository is the whole project"

    def test_a_module_lacks_what_is_elsewhere_in_its_code_root(self, tmp_path: Path) -> None:
        (tmp_path / "libs" / "mine").mkdir(parents=True)
        (tmp_path / "libs" / "mine" / "__init__.py").touch()
        plan = replace(cluster_plan(), module="pkg.train", code_root=str(tmp_path))
        said = explained(failed("ModuleNotFoundError: No module named 'mine'"), plan).hint or ""
        assert said.startswith(f"'mine' is your own code (libs/mine), but Python looks for modules in {tmp_path} and")

    def test_elsewhere_the_way_that_is_shown_works(self, script: Path, tmp_path: Path) -> None:
        (tmp_path / "libs" / "mine").mkdir(parents=True)
        (tmp_path / "libs" / "mine" / "__init__.py").write_text("answer = 42\n")
        said = lacking("mine", script)
        assert "(libs/mine), but Python looks for modules beside train.py only" in said
        line = said[said.index("sys.path.insert") : said.index(" before")]
        names: dict[str, object] = {"__file__": str(script)}
        before = list(sys.path)
        try:
            exec(f"import os, sys\n{line}\nfrom mine import answer", names)  # noqa: S102
        finally:
            sys.path[:] = before
            sys.modules.pop("mine", None)
        assert names["answer"] == 42

    def test_beside_the_script_it_did_not_travel(self, script: Path) -> None:
        (script.parent / "mine.py").touch()
        assert "git ignore" in lacking("mine", script)
        assert "git ignore" not in lacking("mine", script, on_cluster=False)
        assert "which has no 'model'" in lacking("mine.model", script)

    def test_one_that_hides_a_package_is_named(self, script: Path) -> None:
        (script.parent / "yaml.py").touch()
        line = "ModuleNotFoundError: No module named 'yaml.loader'; 'yaml' is not a package"
        failure = explained(failed(line), replace(cluster_plan(), script=str(script)))
        assert failure.hint == "your tools/yaml.py hides a package of that name: call it something else"

    @pytest.mark.parametrize("place", ["wandb/run-1/log.txt", "venv/lib/wandb/__init__.py", ".cache/wandb.py"])
    def test_folders_of_data_and_environments_are_not_it(self, script: Path, tmp_path: Path, place: str) -> None:
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.touch()
        (tmp_path / "venv").mkdir(exist_ok=True)
        (tmp_path / "venv" / "pyvenv.cfg").touch()
        assert "add wandb to" in lacking("wandb", script)


def failed(reason: str, *tail: str) -> Failure:
    return Failure(node="node1", rank=0, exit_code=1, signal=None, reason=reason, log_tail=tail, hint=None)
