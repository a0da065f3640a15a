"""How a script expects to be started, found out from its syntax tree: nothing of it runs."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.job.spawn_style import SpawnStyle, Traits, find_spawn_style, traits_of

LOCAL_RANK_FLAGS = ("--local-rank", "--local_rank")
SPAWN = "spawn"
STYLES = ("1", "0", *LOCAL_RANK_FLAGS, SPAWN)
"""What the user may say of it: 1 is the spelling found, else the first one; 0: the script has no style of its own."""


@dataclass(frozen=True, kw_only=True)
class LaunchStyle:
    """How a script expects to be started where it doesn't go by torchrun's variables."""

    local_rank_flag: str = ""
    """The option that takes its local rank, else empty."""
    spawn: SpawnStyle | None = None
    """Where it starts its own processes."""


def find_style(
    script: Path, tree: ast.Module, arguments: Sequence[str], wanted: str, *, top: Path | None = None
) -> LaunchStyle:
    """Return a script's launch style, from its source, its arguments, and what the user says of it.

    Args:
        wanted: one of STYLES; empty: find out.
        top: where Python looks for what it imports; None: in the script's folder.
    """
    if wanted == "0":
        return LaunchStyle()
    if wanted in LOCAL_RANK_FLAGS:
        return LaunchStyle(local_rank_flag=wanted)
    near: list[Traits] = []
    far: list[Traits] = []
    for path, module in _with_modules_beside(script, tree, top or script.parent):
        (near if path.parent == script.parent and path.name != "__init__.py" else far).append(traits_of(module))
    declared = frozenset[str]().union(*(each.options for each in (*near, *far)))
    flag = next((flag for flag in LOCAL_RANK_FLAGS if flag in declared), "")
    if wanted == SPAWN or not (wanted or flag):
        return LaunchStyle(spawn=find_spawn_style(near, far, arguments, forced=wanted == SPAWN))
    return LaunchStyle(local_rank_flag=flag or LOCAL_RANK_FLAGS[0])


def style_of_unseen(arguments: Sequence[str], wanted: str) -> LaunchStyle:
    """Return the launch style of a program whose source is elsewhere: what the user says of it."""
    if wanted == SPAWN:
        return LaunchStyle(spawn=find_spawn_style([], [], arguments, forced=True))
    if wanted in {"", "0"}:
        return LaunchStyle()
    return LaunchStyle(local_rank_flag=wanted if wanted in LOCAL_RANK_FLAGS else LOCAL_RANK_FLAGS[0])


def _with_modules_beside(script: Path, tree: ast.Module, top: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield a script and the modules below `top` that it imports, directly or through others."""
    waiting, seen = [(script, tree)], {script}
    while waiting:
        path, module = waiting.pop()
        yield path, module
        for beside in _modules_beside(top, path.parent, module):
            if beside not in seen and beside.is_file():
                seen.add(beside)
                with suppress(RingmasterError):  # one that can't be parsed may never be imported
                    waiting.append((beside, parse(beside)))


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
