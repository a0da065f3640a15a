"""The code root: the folder that is every rank's working folder, and travels to a cluster's nodes."""

from pathlib import Path

from launcher.base import caller
from launcher.base.errors import RingmasterError


def code_root(script: Path) -> Path:
    """Return the git top level that holds `script`, else its folder."""
    return git_top(script.parent) or script.parent


def git_top(folder: Path) -> Path | None:
    """Return the git top level that a folder belongs to, by its path."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def given(code: str) -> Path:
    """Return the folder that `CODE` names.

    Raises:
        RingmasterError: it is no folder.
    """
    root = caller.absolute(code)
    if not root.is_dir():
        reason = "is a file, not a folder" if root.exists() else f"no such folder{caller.looked_in(code)}"
        raise RingmasterError(f"CODE: {code}: {reason}; give the folder that holds your code")
    return root


def callers_own() -> Path:
    """Return the code root of a program that names no file: the git top of the folder make was called for, else it.

    Raises:
        RingmasterError: that is the home folder, or the root of all: nobody means that to travel.
    """
    folder = caller.folder()
    root = git_top(folder) or git_top(folder.resolve()) or folder
    if root.resolve() in {Path.home().resolve(), Path("/")}:
        raise RingmasterError(
            f"MODULE: called from {folder}, so its code root would be {root}, with all that is in it: call from your "
            "project's folder, or name it with CODE=<folder>"
        )
    return root


def importable(root: Path) -> tuple[str, ...]:
    """Return the folders below a code root where Python is to find modules: itself, and `src` where there is one.

    Raises:
        RingmasterError: PYTHONPATH can't hold its path.
    """
    if ":" in str(root):
        raise RingmasterError(f"CODE: {root}: Python's path can't hold a folder with a colon in its name; rename it")
    return ("", "src") if (root / "src").is_dir() else ("",)


def below(script: Path, root: Path) -> Path:
    """Return a script's path below the code root that the user named.

    Raises:
        RingmasterError: it lies elsewhere.
    """
    if script.is_relative_to(root):
        return script
    if script.resolve().is_relative_to(root.resolve()):  # one of them is behind a symbolic link
        return root / script.resolve().relative_to(root.resolve())
    raise RingmasterError(
        f"SCRIPT: {script} is not in the code root CODE={root}: give a folder that holds the script, or leave CODE out"
    )
