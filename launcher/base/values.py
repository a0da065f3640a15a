"""Values of options, as every command reads them."""

from launcher.base.errors import RingmasterError


def switch(name: str, text: str) -> bool:
    """Return whether the variable `name` is on: 1, not 0 or empty.

    Raises:
        RingmasterError: `text` is something else.
    """
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"
