"""How a script expects to be started, found out from its syntax tree: nothing of it runs."""

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from launcher.base.errors import RingmasterError

LOCAL_RANK_FLAGS = ("--local-rank", "--local_rank")


def local_rank_flag(script: Path, tree: ast.Module, *, top: Path | None = None) -> str:
    """Return the spelling of the local-rank option that the script declares, or a module beside it that it imports.

    Args:
        top: where Python looks for what it imports; None: in the script's folder.
    """
    declared: set[str] = set()
    waiting, seen = [(script.parent, tree)], {script}
    while waiting:
        folder, module = waiting.pop()
        declared |= _declared_options(module)
        for beside in _modules_beside(top or script.parent, folder, module):
            if beside not in seen and beside.is_file():
                seen.add(beside)
                with suppress(RingmasterError):  # one that can't be parsed may never be imported
                    waiting.append((beside.parent, parse(beside)))
    return next((flag for flag in LOCAL_RANK_FLAGS if flag in declared), "")


def parse(script: Path, *, option: str = "SCRIPT") -> ast.Module:
    """Return a script's syntax tree.

    Args:
        option: what named it, for messages.

    Raises:
        RingmasterError: it is no Python, or can't be read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(script.read_bytes(), filename=str(script))
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL byte
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RingmasterError(
            f"{option}: {script}{line}: not Python ({reason}); fix it or give another file"
        ) from error
    except OSError as error:
        raise RingmasterError(f"{option}: {script}: can't be read ({error.strerror})") from error


def _declared_options(module: ast.Module) -> set[str]:
    """Return the option strings given to `add_argument(…)`, `option(…)` and the like."""
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return {
        word.value
        for call in calls
        for word in call.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value in LOCAL_RANK_FLAGS
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
