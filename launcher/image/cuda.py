"""What an image's CUDA asks of a node: its driver's series, and a card that its PyTorch has code for. Pure.

The playbooks' preflight uses it too.
"""

import re
from collections.abc import Iterable

from launcher.image.content import LOCKS

_DRIVERS = {13: 580, 12: 525, 11: 450}
"""Oldest driver series by CUDA's major version: NVIDIA's CUDA Compatibility, "Minor Version Compatibility"."""
_CARDS = {13: (7, 5), 12: (7, 0)}
"""Oldest compute capability that the lock's PyTorch has code for, by CUDA's major version."""
_BUILDABLE = sorted(map(int, LOCKS), reverse=True)
_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def driver_problem(driver: str, cuda: str, *, named: bool = False) -> str:
    """Return why a driver can't run an image for a version of CUDA, with the ways out.

    It is empty if the driver can, or if either is unknown.

    Args:
        named: whether it is the inventory that names the image, so that `make image` builds none.
    """
    major = _first_number(cuda)
    needed, series = _DRIVERS.get(major, 0), _first_number(driver)
    if not series or series >= needed:
        return ""
    older = next((one for one in _older(major) if series >= _DRIVERS[one]), 0)
    way = f"name an image for CUDA {older} (ringmaster_image)" if named else f"`make image CUDA={older}`"
    ways = f"{way}, or install a newer driver" if older else "install a newer driver"
    return f"its driver {driver} is too old for CUDA {cuda}, which needs {needed} or newer: {ways}"


def driver_prospect(driver: str) -> tuple[str, bool]:
    """Return what to say of a driver before there is an image, and whether none that `make image` builds can use it."""
    what = driver_problem(driver, str(_BUILDABLE[0]))
    return what, bool(driver_problem(driver, str(_BUILDABLE[-1])))


def oldest_driver(drivers: Iterable[str]) -> str:
    """Return the oldest of a node's drivers; empty if there are none."""
    return min(drivers, key=_first_number, default="")


def fitting_cuda(drivers: Iterable[str]) -> str:
    """Return the CUDA version that an image must be built for because of older drivers; empty: the newest will do."""
    series = min(filter(None, map(_first_number, drivers)), default=0)
    fits = next((one for one in _BUILDABLE if _DRIVERS[one] <= series), _BUILDABLE[0])
    return "" if fits == _BUILDABLE[0] else str(fits)


def oldest_code(cuda: str) -> str:
    """Return the oldest code that the lock's PyTorch has, in torch's words, for one of our images' series of CUDA."""
    major, minor = _CARDS[int(cuda)]
    return f"compute_{major}{minor}"


def card_problem(capability: str, architectures: Iterable[str], cuda: str, *, named: bool = False) -> str:
    """Return why a card can't run an image's code, with the ways out.

    It is empty if the card can, or if the card or the image doesn't say what it is.

    Args:
        capability: the card's, such as 8.9.
        architectures: what the image's PyTorch has code for, such as sm_86 and compute_90.
        cuda: the image's version of CUDA.
        named: whether it is the inventory that names the image.
    """
    card, there = _capability(capability), tuple(architectures)
    if card is None or not there or any(_runs(card, one) for one in there):
        return ""
    older = [one for one in _older(_first_number(cuda)) if card >= _CARDS.get(one, card)]
    newer = [one for one in _BUILDABLE if one > _first_number(cuda) and card > max(map(_newest, there))]
    way = next((f"`make image CUDA={one}`, " for one in (*newer, *older)), "")
    if named:
        way = "name an image with code for it (ringmaster_image), "
    return (
        f"compute capability {capability}, the image has code for {' '.join(there)}: {way}choose other GPUs (GPUS=) or "
        "leave the node out (LIMIT=)"
    )


def _runs(card: tuple[int, int], code: str) -> bool:
    """Return whether a card runs this code.

    Compiled code (sm) runs on cards of its major version with its minor or a higher one, intermediate code (compute) on
    every card that isn't older. What is specific to an architecture (a) runs on that alone, and what is specific to a
    family (f) within its major version.
    """
    match = _CODE.fullmatch(code)
    if not match:
        return False
    kind, wanted, specific = match[1], (int(match[2]), int(match[3])), match[4]
    if specific == "a":
        return card == wanted
    if kind == "compute" and not specific:
        return card >= wanted
    return card[0] == wanted[0] and card >= wanted


def _newest(code: str) -> tuple[int, int]:
    match = _CODE.fullmatch(code)
    return (int(match[2]), int(match[3])) if match else (0, 0)


def _older(major: int) -> list[int]:
    """Return the older versions of CUDA that `make image` can build for, the newest first."""
    return [one for one in _BUILDABLE if one < major]


def _capability(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _first_number(text: str) -> int:
    first = text.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else 0
