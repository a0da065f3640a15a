"""Decides which image is wanted, which nodes have it, and which hands it on. Pure, except for two functions."""

import getpass
import re
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_DIGEST = r"sha256:[0-9a-f]{64}"
_BY_DIGEST = re.compile(rf"(?:[a-z0-9][A-Za-z0-9._/:-]*@)?{_DIGEST}")


_BROKEN = "the image's record "
"""Begins a text that takes a reference's place where none could be read; no image has such a name."""
_SHOWN = 19  # characters of an image's ID


def recorded_image(path: str) -> str:
    """Return the reference that `make image` recorded in a file: "" without a file, a text for image_problem if broken.

    It never fails: whatever doesn't need the image must work without it.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return _broken(path, f"is not YAML (line {line}: {error.problem})")
    except (OSError, ValueError, yaml.YAMLError) as error:
        return _broken(path, f"can't be read ({getattr(error, 'strerror', None) or 'not a text'})")
    if content is None:
        return ""
    reference = content.get("ringmaster_image") if isinstance(content, dict) else content
    if not isinstance(content, dict) or not isinstance(reference, str | None):
        return _broken(path, "does not say `ringmaster_image: name@sha256:…`")
    return reference or ""


def recorded_cuda(path: str, reference: str) -> str:
    """Return the version of CUDA that `make image` recorded for an image; empty where it recorded none, or another."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""  # `recorded_image` tells what is wrong with it
    if not isinstance(content, dict) or not reference or content.get("ringmaster_image") != reference:
        return ""
    return str(content.get("cuda") or "")


def image_problem(reference: object) -> str:
    """Return what is wrong with the name of an image, or nothing. An empty name means no image, and is fine."""
    reference = str(reference or "")
    if not reference or _BY_DIGEST.fullmatch(reference):
        return ""
    if reference.startswith(_BROKEN):
        return reference
    name = reference.partition("@")[0]
    return (
        f"ringmaster_image: '{reference}' names no digest (a tag may be moved): write name@sha256:…, "
        f"as `docker pull {name}` shows it"
    )


def new_delivery(_: object = None) -> dict[str, Any]:
    """Return which delivery this is, for nodes to know it by: `id`, `by` (who, where), `since` (Unix time)."""
    return {"id": uuid.uuid4().hex, "by": f"{getpass.getuser()} on {socket.gethostname()}", "since": time.time()}


def image_plan(hostvars: Mapping[str, Any], names: Iterable[str], reference: str) -> dict[str, Any]:
    """Return who gets the image from whom.

    `source` is the first node that has it, or else the first; `missing` are the nodes without it. `before` has, for
    each missing node but the source, the nodes before it in the chain, the nearest first: it falls back on them so.

    `names` are the nodes that this run can still reach.
    """
    nodes = list(names)
    having = [name for name in nodes if _image(hostvars[name], reference)] if reference else nodes
    source = next(iter(having or nodes), "")
    missing = [name for name in nodes if name not in having]
    chain = [source, *(name for name in missing if name != source)]
    before = {name: chain[:place][::-1] for place, name in enumerate(chain) if place}
    return {"source": source, "missing": missing, "before": before}


def image_difference(hostvars: Mapping[str, Any], names: Iterable[str], reference: str, name: str) -> str:
    """Return what is wrong with the image of node `name`, or nothing: it is missing, or differs from most nodes'.

    Images are equal if they have an ID or a digest in common: an engine that keeps images in containerd gives the same
    image another ID.
    """
    if not reference or image_problem(reference):
        return image_problem(reference)
    images = {one: image for one in names if (image := _image(hostvars[one], reference))}
    if name not in images:
        return "the image is not there: `make provision TAGS=train_image` brings it"
    known = {one: {image["id"], *image["digests"]} for one, image in images.items()}
    usual = max(known, key=lambda one: sum(not known[one].isdisjoint(other) for other in known.values()))
    if not known[name].isdisjoint(known[usual]):
        return ""
    return (
        f"the image here ({images[name]['id'][:_SHOWN]}) is not {usual}'s ({images[usual]['id'][:_SHOWN]}): "
        "remove it here, then `make provision TAGS=train_image`"
    )


def image_summary(hostvars: Mapping[str, Any], names: Iterable[str], source: str, reference: str) -> str:
    """Return one line: which node had the image, how long the others took to fetch it, and which failed others."""
    image = _image(hostvars[source], reference) or {}
    served = hostvars[source].get("train_image_served") or {}
    took = {name: (hostvars[name].get("train_image_fetched") or {}).get("took_s") for name in names}
    parts = [f"{source} {'pulled' if served.get('pulled') else 'had'} it"]
    parts += [f"{name} in {seconds:.0f} s" for name, seconds in took.items() if seconds is not None]
    for name in names:
        lost = (hostvars[name].get("train_image_fetched") or {}).get("moved") or []
        parts += [f"{name} went on without {one}" for one in lost]
    return f"{str(image.get('id'))[:_SHOWN]} ({image.get('size_mb', 0) / 1000:.1f} GB): {', '.join(parts)}"


def _image(variables: Mapping[str, Any], reference: str) -> dict[str, Any] | None:
    """Return a node's image: the one that this run brought, or else the one that the probe saw."""
    facts = variables.get("ansible_facts", {})
    image = facts.get("ringmaster_image") or facts.get("ringmaster", {}).get("image")
    return image if image and image["reference"] == reference else None


def _broken(path: str, what: str) -> str:
    return f"{_BROKEN}{path} {what}: fix it, remove it, or make the image again"


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "recorded_image": recorded_image,
            "recorded_cuda": recorded_cuda,
            "image_problem": image_problem,
            "new_delivery": new_delivery,
            "image_plan": image_plan,
            "image_difference": image_difference,
            "image_summary": image_summary,
        }
