"""What every rank runs: the user's script or module, byte for byte as asked, or the bundled trainer."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.job.code_root import below, code_root, importable
from launcher.job.launch_style import find_style, parse
from launcher.job.spawn_style import SpawnStyle

TRAINER = "trainer"
_CONSOLE_SCRIPT = (
    "import sys; from importlib.metadata import distribution; "
    "scripts = {{each.name: each for each in distribution({package!r}).entry_points "
    "if each.group == 'console_scripts'}}; "
    "sys.argv[0] = {script!r}; "
    "sys.exit(scripts[{script!r}].load()() if {script!r} in scripts else "
    "'{package} has no console script {script}; it has: ' + (', '.join(scripts) or 'none'))"
)
"""What an installed console script does; the file itself may be anywhere on a node."""


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
    """The user's script, below `root`; None is a module, or the bundled trainer."""
    module: str = ""
    """The user's module, as Python names it; `package:script` is a console script of an installed package."""
    module_file: Path | None = None
    """The module's file, below `root`; None where the environment has to have it."""
    importable: tuple[str, ...] = ()
    """Folders below `root` (empty: itself) where modules are found too; a script's own folder comes before them."""

    @property
    def bundled(self) -> bool:
        """Whether it is the bundled trainer."""
        return self.script is None and not self.module

    @property
    def file(self) -> Path | None:
        """The file that is run, below `root`; None where that is none of the user's own."""
        return self.script or self.module_file

    def words(self, code: Path) -> tuple[str, ...]:
        """Return the words after the interpreter's: `-u script.py`, `-u -m pkg.train`, or `-u -m trainer`.

        Args:
            code: where the code root is on the node.
        """
        if self.script:
            return ("-u", str(code / self.script.relative_to(self.root)))
        package, colon, script = self.module.partition(":")
        if colon:
            return ("-u", "-c", _CONSOLE_SCRIPT.format(package=package, script=script))
        return ("-u", "-m", self.module or TRAINER)


def bundled(arguments: tuple[str, ...]) -> Program:
    """Return the bundled trainer."""
    return Program(arguments=arguments, root=ROOT)


def user_script(path: Path, arguments: tuple[str, ...], *, launch_style: str = "", root: Path | None = None) -> Program:
    """Return the user's Python file as a program.

    Args:
        path: absolute, or relative to our own working folder.
        root: the code root, if the user named one; then modules are found there too.
        launch_style: one of `launch_style.STYLES`; empty: find out from the script.

    Raises:
        RingmasterError: there is no such file, or it is no file, no Python, or not in the code root.
    """
    script = path.absolute()
    if not script.is_file():
        reason = "is a folder, not a script" if script.is_dir() else "no such file"
        raise RingmasterError(f"SCRIPT: {path}: {reason}; give the path of a Python file")
    if script.suffix.lower() == ".ipynb":
        raise RingmasterError(
            f"SCRIPT: {path}: is a notebook, which torchrun can't run: `jupyter nbconvert --to script "
            f"{shlex.quote(str(path))}`, then SCRIPT={shlex.quote(str(path.with_suffix('.py')))}"
        )
    if root:
        script = below(script, root)
    style = find_style(script, parse(script), arguments, launch_style)
    return Program(
        arguments=arguments,
        local_rank_flag=style.local_rank_flag,
        spawn=style.spawn,
        root=root or code_root(script),
        script=script,
        importable=importable(root) if root else (),
    )
