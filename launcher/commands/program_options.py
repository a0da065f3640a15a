"""`SCRIPT`, `MODULE` and `CODE` become the program that runs; what they leave open is as the resumed job had it."""

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.job import code_root, program
from launcher.job.folder import Earlier
from launcher.job.module import user_module
from launcher.job.program import Program


def choose(
    script: str, module: str, code: str, from_job: Earlier | None, arguments: tuple[str, ...], launch_style: str
) -> Program:
    """Return the program that the options name, with the bundled trainer where they name none.

    Args:
        from_job: the job that is resumed; its program counts where neither script nor module is given.

    Raises:
        RingmasterError: the options contradict each other, or what they name can't be used.
    """
    if script and module:
        raise RingmasterError(f"SCRIPT={script} and MODULE={module}: a job runs one program; give one of them")
    root = code_root.given(code) if code else None
    if from_job and not script and not module:
        script, module = from_job.script or "", from_job.module or ""
        root = root or (code_root.given(from_job.code_root) if from_job.code_root else None)
    if module:
        return user_module(module, root or code_root.callers_own(), arguments, launch_style=launch_style)
    if script:
        path = caller.absolute(script)
        if not path.exists() and (where := caller.looked_in(script)):
            raise RingmasterError(f"SCRIPT: {script}: no such file{where}; give the path of a Python file")
        return program.user_script(path, arguments, launch_style=launch_style, root=root)
    if root:
        raise RingmasterError(f"CODE={code}: the bundled trainer needs no code; name your program: SCRIPT= or MODULE=")
    return program.bundled(arguments)
