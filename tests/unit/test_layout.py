"""The walls of the house that import-linter can't see; and that each wall, import-linter's too, can fail."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from launcher.base.paths import ROOT

FOR_NODES = ("launcher/on_node", "launcher/supervisor")
"""Programs that run on nodes: `supervisor` is the place of those that watch over a job there, which are to come."""
OLDEST_PYTHON = (3, 9)
"""A node's."""
MODULE_UTILS = "playbooks/module_utils/ringmaster"
ARROWS = {("engine", "packages"), ("image", "engine"), ("firewall", "system"), ("system", "names")}
"""Which package of module_utils may import which, besides `core` and itself."""
LINES, FUNCTION_LINES, MODULES = 400, 50, 25
CODE = ("launcher", "trainer", "playbooks", "lab", "benchmarks", "tests")


def sources(*folders: str, root: Path = ROOT) -> list[Path]:
    return sorted(chain.from_iterable((root / folder).rglob("*.py") for folder in folders))


def imports(source: str) -> Iterator[str]:
    """Every module that `source` imports, also inside functions; relative ones begin with a dot."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def foreign_imports(path: Path) -> list[str]:
    """What a program for nodes imports besides the standard library and, as a package, itself."""
    own = ".".join(path.relative_to(ROOT).parent.parts) if path.parent.name == "supervisor" else None
    return [
        name
        for name in imports(path.read_text())
        if name.partition(".")[0] not in sys.stdlib_module_names and not (own and f"{name}.".startswith(f"{own}."))
    ]


def module_utils_arrows(source: str, package: str) -> list[str]:
    """The packages of module_utils that `source`, in `package`, must not import."""
    found = re.findall(r"^\s*from ansible\.module_utils\.ringmaster\.(\w+)", source, re.MULTILINE)
    return [name for name in found if name not in {"core", package} and (package, name) not in ARROWS]


def long_functions(source: str) -> list[str]:
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES]


def too_long(source: str) -> bool:
    """A file above the limit says in its docstring why it is one file."""
    return source.count("\n") > LINES and "one file" not in (ast.get_docstring(ast.parse(source)) or "")


@pytest.mark.parametrize("path", sources(*FOR_NODES), ids=lambda path: path.stem)
def test_a_program_for_nodes_needs_only_an_old_python(path: Path) -> None:
    assert foreign_imports(path) == []
    source = path.read_text()
    ast.parse(source, feature_version=OLDEST_PYTHON)
    # Parsing doesn't evaluate annotations, and importing there would: `int | None` is an error in Python 3.9.
    assert path.name == "__init__.py" or "\nfrom __future__ import annotations\n" in source


@pytest.mark.parametrize("path", sources("playbooks/library", "playbooks/module_utils"), ids=lambda path: path.stem)
def test_what_ansible_runs_on_nodes_needs_only_an_old_python(path: Path) -> None:
    source = path.read_text()
    ast.parse(source, feature_version=OLDEST_PYTHON)
    assert path.name == "__init__.py" or "\nfrom __future__ import annotations\n" in source


def test_a_program_for_nodes_that_needs_more_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "launcher" / "on_node" / "probe.py"
    path.parent.mkdir(parents=True)
    path.write_text("import json\ndef f():\n    import torch\n    from launcher.on_node import rank\n")
    assert foreign_imports(path) == ["torch", "launcher.on_node"]
    package = tmp_path / "launcher" / "supervisor" / "state.py"
    package.parent.mkdir()
    package.write_text("import launcher.supervisor.clock\nfrom launcher.base import errors\n")
    assert foreign_imports(package) == ["launcher.base"]
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=OLDEST_PYTHON)


def test_module_utils_import_core_and_their_own_package() -> None:
    for path in sources(MODULE_UTILS):
        package = path.relative_to(ROOT / MODULE_UTILS).parts[0]
        assert module_utils_arrows(path.read_text(), package) == [], path
    line = "from ansible.module_utils.ringmaster.{}.x import y\n"
    source = line.format("core") + line.format("engine") + line.format("firewall")
    assert module_utils_arrows(source, "engine") == ["firewall"]


def test_files_functions_and_folders_stay_small() -> None:
    paths = sources(*CODE)
    assert [path for path in paths if too_long(path.read_text())] == []
    assert [(path, names) for path in paths if (names := long_functions(path.read_text()))] == []
    folders = {path.parent for path in paths}
    full = {folder for folder in folders if len([*folder.glob("*.py")]) - (folder / "__init__.py").exists() > MODULES}
    assert full == set()


def test_what_is_too_long_is_seen() -> None:
    source = "def f():\n" + "    pass\n" * FUNCTION_LINES
    assert long_functions(source) == ["f"] and not too_long(source)
    assert too_long("x = 1\n" * (LINES + 1))
    assert not too_long('"""Is one file because it travels."""\n' + "x = 1\n" * LINES)


PLANTED = {
    "launcher": ("launcher/base/errors.py", "import launcher.commands.cli"),
    "cluster": ("launcher/cluster/sockets.py", "import launcher.cluster.site"),
    "engine": ("launcher/cluster/engine/containers.py", "import launcher.cluster.engine.runtime"),
    "verbs": ("launcher/commands/train.py", "import launcher.commands.jobs"),
    "image-verb": ("launcher/commands/provision.py", "import launcher.commands.image"),
    "on-node": ("launcher/on_node/rank.py", "import launcher.on_node.probe"),
    "on-node-alone": ("launcher/on_node/tree_store.py", "import launcher.base.paths"),
    "trainer": ("trainer/errors.py", "import trainer.run"),
    "data": ("trainer/data/batches/__init__.py", "import trainer.data.open_data"),
    "trainer-alone": ("trainer/run.py", "import launcher.base.paths"),
    "below": ("launcher/image/content.py", "import lab.lab"),
    "torch": ("trainer/config/flags.py", "import torch"),
    "circles": ("trainer/config/__init__.py", "import trainer.reporting.page\n"),
}
"""For each contract in pyproject.toml an import that breaks it."""


def test_each_contract_of_import_linter_can_fail(tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == PLANTED.keys()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("launcher", "trainer", "lab", "benchmarks"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, line in (*PLANTED.values(), ("trainer/reporting/__init__.py", "import trainer.config.flags")):
        with (tmp_path / name).open("a") as file:
            file.write(f"{line}\n")
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and f"0 kept, {len(contracts)} broken" in done.stdout, done.stdout + done.stderr
