"""Values of options, as every command reads them; numbers as people read them."""

import re

from launcher.base.errors import RingmasterError

_UNITS_TYPED = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS = {3: "kB", 6: "MB", 9: "GB"}


def switch(name: str, text: str) -> bool:
    """Return whether the variable `name` is on: 1, not 0 or empty.

    Raises:
        RingmasterError: `text` is something else.
    """
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"


def size(name: str, text: str) -> int | None:
    """Return the bytes that the variable `name` means: 50G, 1.5G, 500M, 20k, 0; None where it is empty.

    Raises:
        RingmasterError: `text` is something else.
    """
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([kmgt]?)b?", text.lower())
    if not found:
        raise RingmasterError(f"{name}={text}: must be a size such as 50G or 500M, or 0")
    return int(float(found[1]) * _UNITS_TYPED[found[2]])


def amount(size: int) -> str:
    """Return a number of bytes in a unit for people."""
    if size < 1000:
        return f"{size} bytes"
    power = next((power for power in (3, 6) if size < 999.95 * 10**power), 9)
    return f"{size / 10**power:,.1f} {_UNITS[power]}"
