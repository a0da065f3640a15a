"""The `ringmaster_…` variables of an inventory: their names, and the values that each may have."""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from launcher.inventory.rank_variables import name_problem


def _count(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit() and not isinstance(value, bool)


def _variables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        re.fullmatch(r"[A-Za-z_]\w*", str(name)) and isinstance(item, str | int | float) for name, item in value.items()
    )


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "runtime": ("docker or process", lambda value: value in ("docker", "process")),
    "cluster_ip": ("an address", _text),
    "interface": ("a network interface's name", _text),
    "gpus": ("a whole number from 0 up", _count),
    "ranks_per_node": ("a whole number from 1 up", lambda value: _count(value) and int(value) > 0),
    "backend": ("auto, nccl or gloo", lambda value: value in ("auto", "nccl", "gloo")),
    "data_dir": ("an absolute path", lambda value: _text(value) and str(value).startswith("/")),
    # Only a cluster's nodes use the rest; processes on this machine ignore them.
    "job_dir": ("an absolute path", lambda value: _text(value) and str(value).startswith("/")),
    "image": ("an image reference", _text),
    "firewall": ("disabled, cluster_only or keep", lambda value: value in ("disabled", "cluster_only", "keep")),
    "engine_source": ("distribution or vendor", lambda value: value in ("distribution", "vendor")),
    "comm_env": ("a mapping of variables, such as {NCCL_DEBUG: INFO}", _variables),
}


def settings_problem(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a host's settings (names without the prefix) in a sentence, or None."""
    for name, value in settings.items():
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            known = f"did you mean ringmaster_{near[0]}?" if near else f"known: {', '.join(SETTINGS)}"
            return f"there is no setting ringmaster_{name}; {known}"
        allowed, fits = SETTINGS[name]
        if not fits(value):
            return f"ringmaster_{name} is {value!r}; must be {allowed}"
        if name == "comm_env" and (problem := next(filter(None, map(name_problem, value)), "")):
            return f"ringmaster_comm_env: {problem}"
    return None
