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


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"facts_of": facts_of, "settings_of": settings_of}
