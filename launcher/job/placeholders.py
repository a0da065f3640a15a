"""`PLACEHOLDERS=1`: words in braces that stand, in `ARGS`, for what differs by node or lies elsewhere there. Pure."""

import re
from collections.abc import Mapping, Sequence

from launcher.base.errors import RingmasterError

FOLDERS = ("DATA_DIR", "RUN_DIR", "CHECKPOINT_DIR")
"""Placeholders that are called as the variables whose values they stand for."""
NAMES = ("node_rank", "nodes", "head", "port", "init_method", *FOLDERS)
# `${x}` and `${{x}}` belong to Hydra and its like; `{a,b}`, `{"a": 1}`, `{0}` and `{}` hold no name.
_BRACES = re.compile(r"(?<!\$)(?<!\$\{)(?:\{\{([^\W\d]\w*)\}\}|\{([^\W\d]\w*)\})")
"""A name in braces; in two pairs, as in Python's own templates, it is passed on in one."""


def names_in(arguments: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in `arguments`.

    Raises:
        RingmasterError: one looks like a placeholder and is none.
    """
    found = {name for word in arguments for _, name in _BRACES.findall(word) if name}
    if unknown := sorted(found - set(NAMES)):
        allowed = ", ".join(f"{{{name}}}" for name in NAMES)
        raise RingmasterError(
            f"ARGS: {{{unknown[0]}}} is no placeholder; there are {allowed}; "
            f"{{{{{unknown[0]}}}}} passes {{{unknown[0]}}} on as it is"
        )
    return found


def fill_in(word: str, values: Mapping[str, str]) -> str:
    """Return `word` with its placeholders replaced by their values, anywhere in it."""
    return _BRACES.sub(lambda match: f"{{{match[1]}}}" if match[1] else values[match[2]], word)


def url(host: str, port: int) -> str:
    """Return the address of a meeting point, as torch takes it; an IPv6 address is put in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
