"""What every rank runs: the user's script, byte for byte as asked, or the bundled trainer."""

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT

TRAINER = "trainer"
_LOCAL_RANK_FLAGS = ("--local-rank", "--local_rank")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program as torchrun's ranks start it."""

    arguments: tuple[str, ...]
    local_rank_flag: str = ""
    """`--local-rank` or `--local_rank` where the script is of the older launch style, else empty."""
    root: Path
    """The code root: the working folder of every rank."""
    script: Path | None = None
    """The user's script, below `root`; None is the bundled trainer."""

    def words(self, code: Path) -> tuple[str, ...]:
        """Return the words after the interpreter's: `-u script.py`, or `-u -m trainer`.

        Args:
            code: where the code root is on the node.
        """
        if self.script is None:
            return ("-u", "-m", TRAINER)
        return ("-u", str(code / self.script.relative_to(self.root)))


def bundled(arguments: tuple[str, ...]) -> Program:
    """Return the bundled trainer."""
    return Program(arguments=arguments, root=ROOT)


def user_script(path: Path, arguments: tuple[str, ...], *, launch_style: str = "") -> Program:
    """Return the user's Python file as a program.

    Args:
        path: absolute, or relative to where the user is.
        launch_style: "1": the script parses `--local-rank`; "0": it doesn't; "": find out from the script.

    Raises:
        RingmasterError: there is no such file, or it is no file, or no Python.
    """
    script = path.absolute()
    if not script.is_file():
        reason = "is a folder, not a script" if script.is_dir() else "no such file"
        raise RingmasterError(f"SCRIPT: {path}: {reason}; give the path of a Python file")
    tree = _parse(script)
    flag = local_rank_flag(script, tree) if launch_style != "0" else ""
    return Program(
        arguments=arguments,
        local_rank_flag=flag or (_LOCAL_RANK_FLAGS[0] if launch_style == "1" else ""),
        root=code_root(script),
        script=script,
    )


def code_root(script: Path) -> Path:
    """Return the git top level that holds `script`, else its folder."""
    return next((folder for folder in script.parents if (folder / ".git").exists()), script.parent)


def local_rank_flag(script: Path, tree: ast.Module) -> str:
    """Return the spelling of the local-rank option that the script declares, or a module beside it that it imports."""
    declared: set[str] = set()
    waiting, seen = [(script.parent, tree)], {script}
    while waiting:
        folder, module = waiting.pop()
        declared |= _declared_options(module)
        for beside in _modules_beside(script.parent, folder, module):
            if beside not in seen and beside.is_file():
                seen.add(beside)
                with suppress(RingmasterError):  # one that can't be parsed may never be imported
                    waiting.append((beside.parent, _parse(beside)))
    return next((flag for flag in _LOCAL_RANK_FLAGS if flag in declared), "")


def _parse(script: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(script.read_bytes(), filename=str(script))
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL byte
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RingmasterError(f"SCRIPT: {script}{line}: not Python ({reason}); fix it or give another file") from error
    except OSError as error:
        raise RingmasterError(f"SCRIPT: {script}: can't be read ({error.strerror})") from error


def _declared_options(module: ast.Module) -> set[str]:
    """Return the option strings given to `add_argument(…)`, `option(…)` and the like."""
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return {
        word.value
        for call in calls
        for word in call.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value in _LOCAL_RANK_FLAGS
    }


def _modules_beside(top: Path, own: Path, module: ast.Module) -> Iterator[Path]:
    """Yield the files that a module may import.

    Args:
        top: the script's folder; only files below it count.
        own: the folder that the module is in.
    """
    for node in ast.walk(module):
        names, folder = [], top
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = [node.module] if node.module else []
            names = [*prefix, *(".".join([*prefix, alias.name]) for alias in node.names)]
            if node.level:
                folder = (own, *own.parents)[min(node.level - 1, len(own.parents))]
        for name in names:
            path = folder.joinpath(*name.split("."))
            yield from (path.with_name(f"{path.name}.py"), path / "__init__.py")
