"""Which nodes have the training image, and which hands it on. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_DIGEST = r"sha256:[0-9a-f]{64}"
_BY_DIGEST = re.compile(rf"(?:[a-z0-9][A-Za-z0-9._/:-]*@)?{_DIGEST}")


def image_problem(reference: str) -> str:
    """Return what is wrong with the name of an image, or nothing. An empty name is none, and fine."""
    if not reference or _BY_DIGEST.fullmatch(reference):
        return ""
    name = reference.partition("@")[0]
    return (
        f"ringmaster_image: '{reference}' names no digest (a tag may be moved): write name@sha256:…, "
        f"as `docker pull {name}` shows it"
    )


def image_plan(hostvars: Mapping[str, Any], names: Iterable[str], reference: str) -> dict[str, Any]:
    """Return `missing`, the nodes without the image, and `source`, the first that has it (or the first).

    `names` are the nodes that this run can still reach.
    """
    nodes = list(names)
    having = [name for name in nodes if _image(hostvars[name], reference)] if reference else nodes
    source = next(iter(having or nodes), "")
    return {"source": source, "missing": [name for name in nodes if name not in having]}


def image_difference(hostvars: Mapping[str, Any], names: Iterable[str], reference: str) -> str:
    """Return how the nodes' images differ, or nothing.

    Equal is what has one image ID, or one digest in common: an engine that keeps images in containerd calls the same
    image by another ID.
    """
    images = {name: _image(hostvars[name], reference) for name in names}
    without = [name for name, image in images.items() if not image]
    if without:
        return f"{', '.join(without)}: the image is not there: `make provision TAGS=train_image` brings it"
    common = set.intersection(*({image["id"], *image["digests"]} for image in images.values() if image))
    if common:
        return ""
    shown = ", ".join(f"{name} {image['id'][:19]}" for name, image in images.items() if image)
    return f"the nodes' images differ ({shown}): remove the wrong one there, then `make provision TAGS=train_image`"


def image_summary(hostvars: Mapping[str, Any], names: Iterable[str], source: str, reference: str) -> str:
    """Return one line: who had the image, and how long the others took to get it."""
    image = _image(hostvars[source], reference) or {}
    served = hostvars[source].get("train_image_served") or {}
    took = {name: (hostvars[name].get("train_image_fetched") or {}).get("took_s") for name in names}
    parts = [f"{source} {'pulled' if served.get('pulled') else 'had'} it"]
    parts += [f"{name} in {seconds:.0f} s" for name, seconds in took.items() if seconds is not None]
    return f"{str(image.get('id'))[:19]} ({image.get('size_mb', 0) / 1000:.1f} GB): {', '.join(parts)}"


def _image(variables: Mapping[str, Any], reference: str) -> dict[str, Any] | None:
    """Return what a node has: as this run brought it, else as the probe saw it."""
    facts = variables.get("ansible_facts", {})
    found = facts.get("ringmaster_image") or facts.get("ringmaster", {}).get("image")
    return found if found and found["reference"] == reference else None


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "image_problem": image_problem,
            "image_plan": image_plan,
            "image_difference": image_difference,
            "image_summary": image_summary,
        }
