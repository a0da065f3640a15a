"""`MODULE`: a program that is named as Python names it, and not by its file. Nothing of it is imported here."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.job.code_root import importable
from launcher.job.launch_style import find_style, parse, style_of_unseen
from launcher.job.program import Program

_PART, _PACKAGE = re.compile(r"[^\s./\\:-][^\s./\\:]*"), re.compile(r"\w[\w.-]*")
_SHOWN = 5


def user_module(name: str, root: Path, arguments: tuple[str, ...], *, launch_style: str = "") -> Program:
    """Return a module, or a console script (`name:script`), as a program.

    Args:
        root: the code root. A module that is not below it may still be the environment's, which is checked later.
        launch_style: one of `launch_style.STYLES`; empty: find out from its file, if that is here.

    Raises:
        RingmasterError: no module can have this name, its file is no Python, or the user's own package lacks it.
    """
    package, console, script = name.partition(":")
    _check_form(name, [package, script] if console else package.split("."), console=bool(console))
    search = importable(root)
    folders = [root / folder for folder in search]
    file = None if console else _file(name, folders)
    if file:
        top = next(folder for folder in reversed(folders) if file.is_relative_to(folder))
        style = find_style(file, parse(file, option="MODULE"), arguments, launch_style, top=top)
    else:
        style = style_of_unseen(arguments, launch_style)
    return Program(
        arguments=arguments,
        local_rank_flag=style.local_rank_flag,
        spawn=style.spawn,
        root=root,
        module=name,
        module_file=file,
        importable=search,
    )


def find(name: str, folders: Sequence[Path]) -> list[Path]:
    """Return where Python finds a module: its file, its package's folder, or all folders of a package without a file.

    Args:
        folders: where it looks, in order.
    """
    found: list[Path] = []
    for part in name.split("."):
        found = _look(part, folders)
        folders = [path for path in found if path.is_dir()]
    return found


def lacks(name: str, folders: Sequence[Path]) -> str:
    """Return why a module can't be run from these folders, with a remedy; empty if it can."""
    found = find(name, folders)
    if not found:
        *above, last = name.split(".")
        there = [path for path in find(".".join(above), folders) if path.is_dir()] if above else []
        others = sorted({path.stem for path in there[0].iterdir() if _is_module(path)}) if there else []
        near = difflib.get_close_matches(last, others, n=_SHOWN, cutoff=0.4) or others[:_SHOWN]
        known = f"; {'.'.join(above)} has {', '.join(near)}" if near else ""
        return f"there is no module {name}{known}"
    if _runnable(found):
        return ""
    programs = [f"MODULE={name}.{path.stem}" for path in sorted(found[0].glob("*.py")) if _is_program(path)]
    known = f", such as {', '.join(programs[:_SHOWN])}" if programs else ""
    return f"{name} is a package without a __main__.py: name one of its modules{known}"


def module_name(file: Path, root: Path) -> str:
    """Return what `MODULE` calls a file below a code root; empty where no module can be called like its path."""
    top = root / "src" if file.is_relative_to(root / "src") else root
    parts = file.relative_to(top).with_suffix("").parts
    return ".".join(parts) if all(map(_PART.fullmatch, parts)) else ""


def _check_form(name: str, parts: Sequence[str], *, console: bool) -> None:
    if name.endswith(".py") or "/" in name:
        path = name.removesuffix(".py").strip("./").removeprefix("src/").replace("/", ".")
        raise RingmasterError(f"MODULE={name}: give a module as Python names it, MODULE={path}, or a file as SCRIPT=")
    if not all(map((_PACKAGE if console else _PART).fullmatch, parts)):
        raise RingmasterError(
            f"MODULE={name!r}: give a module, such as pkg.train, or a package and its console script, "
            "such as accelerate:accelerate"
        )


def _file(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the file that Python would run; None where nothing of that name is the user's own.

    Raises:
        RingmasterError: the package is the user's own, and lacks the module.
    """
    file = _runnable(find(name, folders))
    top = next(iter(find(name.partition(".")[0], folders)), None)
    # A folder without __init__.py may have the name of an installed package by chance (wandb/).
    if file is None and top and (top.is_file() or (top / "__init__.py").is_file()):
        raise RingmasterError(f"MODULE={name}: {lacks(name, folders)} (looked in {top})")
    return file


def _look(part: str, folders: Sequence[Path]) -> list[Path]:
    portions = []
    for folder in folders:
        package, file = folder / part, folder / f"{part}.py"
        if (package / "__init__.py").is_file():
            return [package]
        if file.is_file():
            return [file]
        if package.is_dir():
            portions.append(package)
    return portions


def _runnable(found: Sequence[Path]) -> Path | None:
    """Return the file that `python -m` runs of what `find` found."""
    files = (path if path.is_file() else path / "__main__.py" for path in found)
    return next((file for file in files if file.is_file()), None)


def _is_module(path: Path) -> bool:
    return (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()


def _is_program(path: Path) -> bool:
    try:
        return path.stem != "__init__" and b"__main__" in path.read_bytes()
    except OSError:
        return False
