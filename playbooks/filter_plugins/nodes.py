"""What is known of several nodes at once, by name: the probe's facts, and settings of the inventory."""

from collections.abc import Iterable, Mapping
from typing import Any

_PREFIX = "ringmaster_"


def facts_of(hostvars: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the facts of those nodes that were looked at in this run."""
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


def proved(fact: Mapping[str, Any], nodes: int) -> str:
    """Return what a verification has shown of a node, in a line."""
    cluster, gpus = fact["network"]["cluster"], fact["gpus"]
    image = fact["image"]["id"].removeprefix("sha256:")[:12] if fact["image"] else "none recorded"
    parts = [
        f"{cluster['interface']} {cluster['address']}",
        f"reaches {nodes - 1} others by SSH" if nodes > 1 else "alone",
        f"engine {fact['engine']['version']}",
        f"{len(gpus)} x {gpus[0]['model']}" if gpus else "no GPU",
        f"image {image}",
    ]
    return ", ".join(parts)


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"facts_of": facts_of, "settings_of": settings_of, "proved": proved}
