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


def proved(facts: Mapping[str, Mapping[str, Any]], inventory: Iterable[str], me: str, tried: Iterable[str]) -> str:
    """Return one line about what a verification has proved of the node `me`.

    `facts` are those of the nodes that were looked at; `tried` are the nodes that `me` has logged in at.
    """
    fact = facts[me]
    cluster, gpus = fact["network"]["cluster"], fact["gpus"]
    image = fact["image"]["id"].removeprefix("sha256:")[:12] if fact["image"] else "none recorded"
    others = [name for name in inventory if name != me]
    parts = [
        f"{cluster['interface']} {cluster['address']}",
        _reached(facts, others, len({*tried} & {*others})),
        f"engine {fact['engine']['version']}",
        f"{len(gpus)} x {gpus[0]['model']}" if gpus else "no GPU",
        f"image {image}",
    ]
    return ", ".join(parts)


def _reached(facts: Mapping[str, Mapping[str, Any]], others: list[str], tried: int) -> str:
    """Return how many others were reached by SSH, and why not all. (One that fails fails the verification.)"""
    absent = [name for name in others if name not in facts or not facts[name]["network"]["cluster"]["address"]]
    if not others:
        return "alone"
    if tried == len(others):
        return f"reaches {tried} others by SSH"
    why = ["a sample"] if tried < len(others) - len(absent) else []
    if absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        why.append(f"not looked at: {', '.join(absent[:_NAMED])}{more}")
    return f"reaches {tried} of {len(others)} others by SSH ({'; '.join(why)})"


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"facts_of": facts_of, "settings_of": settings_of, "proved": proved}
