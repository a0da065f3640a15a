"""What to do where a script of a package imports relatively: that needs a module, not a file."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

from launcher.follow.cause.failure import Failure
from launcher.job.module import module_name
from launcher.job.plan import Plan

_RELATIVE = re.compile(r"ImportError: attempted relative import (with no known parent|beyond top-level) package")


def explained(failure: Failure, plan: Plan) -> Failure:
    """Return the failure with a hint how to start the script as a module, if that is what it lacks."""
    lines = (failure.reason, *failure.log_tail)
    if plan.script is None or not any(map(_RELATIVE.search, lines)):
        return failure
    script = Path(plan.script)
    top = script.parent.parent  # the lowest folder from which the script is in a package
    while (top / "__init__.py").is_file() and top != top.parent:
        top = top.parent
    root = top.parent if top.name == "src" else top
    name, code = module_name(script, root), shlex.quote(str(root))
    if not name:
        return failure
    return replace(failure, hint=f"{script.name} is a part of a package: start it as MODULE={name} CODE={code}")
