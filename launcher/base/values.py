"""Values of options, as every command reads them; numbers as people read them."""

from launcher.base.errors import RingmasterError

_UNITS = {3: "kB", 6: "MB", 9: "GB"}


def switch(name: str, text: str) -> bool:
    """Return whether the variable `name` is on: 1, not 0 or empty.

    Raises:
        RingmasterError: `text` is something else.
    """
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"


def amount(size: int) -> str:
    """Return a number of bytes in a unit for people."""
    if size < 1000:
        return f"{size} bytes"
    power = next((power for power in (3, 6) if size < 999.95 * 10**power), 9)
    return f"{size / 10**power:,.1f} {_UNITS[power]}"
