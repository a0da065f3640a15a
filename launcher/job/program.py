"""What every rank runs: the user's script, byte for byte as asked, or the bundled trainer."""

from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.job.launch_style import find_style, parse
from launcher.job.spawn_style import SpawnStyle

TRAINER = "trainer"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program as torchrun's ranks start it."""

    arguments: tuple[str, ...]
    local_rank_flag: str = ""
    """`--local-rank` or `--local_rank` where the script is of the older launch style, else empty."""
    spawn: SpawnStyle | None = None
    """Where the script starts its own processes, and so is started once per node."""
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
        launch_style: one of `launch_style.STYLES`; empty: find out from the script.

    Raises:
        RingmasterError: there is no such file, or it is no file, or no Python.
    """
    script = path.absolute()
    if not script.is_file():
        reason = "is a folder, not a script" if script.is_dir() else "no such file"
        raise RingmasterError(f"SCRIPT: {path}: {reason}; give the path of a Python file")
    style = find_style(script, parse(script), arguments, launch_style)
    return Program(
        arguments=arguments,
        local_rank_flag=style.local_rank_flag,
        spawn=style.spawn,
        root=code_root(script),
        script=script,
    )


def code_root(script: Path) -> Path:
    """Return the git top level that holds `script`, else its folder."""
    return next((folder for folder in script.parents if (folder / ".git").exists()), script.parent)
