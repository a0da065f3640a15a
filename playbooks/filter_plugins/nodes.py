"""Gathers what is known of several nodes, by name: the probe's facts and the inventory's settings. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

_PREFIX = "ringmaster_"
# How many names are listed; the rest is a number.
_NAMED = 5


def facts_of(hostvars: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the facts of the nodes that were looked at in this run."""
    return {
        name: hostvars[name]["ansible_facts"]["ringmaster"]
        for name in names
        if "ringmaster" in hostvars[name].get("ansible_facts", {})
    }


def settings_of(hostvars: Mapping[str, Any], names: Iterable[str], *settings: str) -> dict[str, dict[str, Any]]:
    """Return the named settings (without their prefix `ringmaster_`) of each node, where the inventory gives them."""
    return {
        name: {one: hostvars[name][_PREFIX + one] for one in settings if _PREFIX + one in hostvars[name]}
        for name in names
    }


def proved(facts: Mapping[str, Mapping[str, Any]], inventory: Iterable[str], me: str) -> str:
    """Return one line about what a verification has proved of the node `me`.

    `facts` are those of the nodes that were looked at.
    """
    fact = facts[me]
    cluster, gpus = fact["network"]["cluster"], fact["gpus"]
    image = fact["image"]["id"].removeprefix("sha256:")[:12] if fact["image"] else "none recorded"
    parts = [
        f"{cluster['interface']} {cluster['address']}",
        _reached(facts, [name for name in inventory if name != me]),
        f"engine {fact['engine']['version']}",
        f"{len(gpus)} x {gpus[0]['model']}" if gpus else "no GPU",
        f"image {image}",
    ]
    return ", ".join(parts)


def _reached(facts: Mapping[str, Mapping[str, Any]], others: list[str]) -> str:
    """Return how many others were reached by SSH, and which were not tried. (One that fails fails the verification.)"""
    left = [name for name in others if name not in facts or not facts[name]["network"]["cluster"]["address"]]
    if not left:
        return f"reaches {len(others)} others by SSH" if others else "alone"
    named = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
    return f"reaches {len(others) - len(left)} of {len(others)} others by SSH (not tried: {named})"


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"facts_of": facts_of, "settings_of": settings_of, "proved": proved}
