"""A script that is a part of a package: the way to start it is shown, and works."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.follow.cause.failure import Failure
from launcher.follow.cause.relative_import import explained
from launcher.job.module import user_module
from tests.support.plans import cluster_plan

NO_PARENT = "ImportError: attempted relative import with no known parent package"
TOO_HIGH = "ImportError: attempted relative import beyond top-level package"


def advice(script: Path, reason: str) -> str | None:
    failure = Failure(node="node1", rank=0, exit_code=1, signal=None, reason=reason, log_tail=(), hint=None)
    return explained(failure, replace(cluster_plan(), script=str(script))).hint


@pytest.mark.parametrize("reason", [NO_PARENT, TOO_HIGH])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("src/pkg/train.py", "pkg.train"),
        ("pkg/cli/train.py", "pkg.cli.train"),
        ("src/pkg/cli/train.py", "pkg.cli.train"),
    ],
)
def test_the_module_is_named(tmp_path: Path, reason: str, path: str, name: str) -> None:
    script = tmp_path / path
    script.parent.mkdir(parents=True)
    script.touch()
    for folder in script.parents:
        if folder.name in {"pkg", "cli"}:
            (folder / "__init__.py").touch()
    assert advice(script, reason) == f"train.py is a part of a package: start it as MODULE={name} CODE={tmp_path}"
    assert user_module(name, tmp_path, ()).module_file == script


def test_a_folder_without_init_is_a_package_too(tmp_path: Path) -> None:
    script = tmp_path / "pkg" / "train.py"
    assert (advice(script, NO_PARENT) or "").endswith(f"MODULE=pkg.train CODE={tmp_path}")
    assert advice(tmp_path / "my pkg" / "train.py", NO_PARENT) is None, "no module can be called so"


def test_other_errors_are_left_alone(tmp_path: Path) -> None:
    assert advice(tmp_path / "pkg" / "train.py", "ImportError: cannot import name x") is None
