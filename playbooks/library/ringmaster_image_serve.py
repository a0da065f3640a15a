#!/usr/bin/python
"""Ansible module: hands the training image on, after pulling it over the WAN if need be.

`state: served` returns what the other nodes need to fetch it; `state: stopped` ends the serving. The other nodes reach
the registry only through an SSH connection (module `ringmaster_image_fetch`): nothing listens on the network.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.engine import Engine
from ansible.module_utils.ringmaster.image.names import REPOSITORY, ROLE, canonical, describe, find_image
from ansible.module_utils.ringmaster.image.prune import forget_old
from ansible.module_utils.ringmaster.image.registry import FOLDER, in_use, keep_only, manifest_of, start, stop
from ansible.module_utils.ringmaster.image.remote import compressed_size
from ansible.module_utils.ringmaster.image.space import layers_of
from ansible.module_utils.ringmaster.image.transfer import run

_MAKE = "leave out LIMIT, or make the image again"
_COMPRESSED = 0.7
"""The most that an image takes in the registry, as a part of its size."""


def obtain(manifest: Manifest, engine: Engine, parameters: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the image, and whether it had to be pulled.

    Raises:
        ValueError: it can't be pulled.
    """
    reference = str(parameters["reference"])
    image = find_image(engine, reference)
    if image is not None:
        return image, False
    name = canonical(reference)
    kept = name.startswith(REPOSITORY) and os.path.exists(FOLDER)
    if "@" not in name or (name.startswith(REPOSITORY) and not kept):
        raise ValueError(f"no node of this run has the image {reference}: {_MAKE}")
    if kept:
        start(manifest, parameters["user"])  # it may still have the image that the engine has lost
    check_room_to_pull(engine, name, parameters["home"])
    manifest.note(ROLE, "image", name)
    try:
        run("pull", name, home=parameters["home"], seconds=parameters["seconds"])
    except ValueError as error:
        remedy = _MAKE if kept else remedy_of(str(error), name, parameters["user"])
        raise ValueError(f"can't pull {reference}: {str(error).replace(name, 'it')}: {remedy}") from error
    image = find_image(engine, reference)
    if image is None:
        raise ValueError(f"the engine pulled {reference}, but doesn't know it by that name: use another reference")
    return image, True


def serve(
    manifest: Manifest, engine: Engine, image: dict[str, Any], parameters: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Push it into the registry; return the offer for the others, and whether this node serves it for the first time.

    Raises:
        OSError, ValueError: the registry can't be started, or doesn't take it.
    """
    check_room(image)
    tag = image["Id"].partition(":")[2][:12]
    name = f"{REPOSITORY}:{tag}"
    fresh = manifest.find(ROLE, "image", name) is None
    nameless = not image.get("RepoTags") and not image.get("RepoDigests")
    manifest.note(ROLE, "image", name, only_name=nameless)
    engine.tag(image["Id"], name)
    start(manifest, parameters["user"])
    run("push", name, home=parameters["home"], seconds=parameters["seconds"])
    digest, content = manifest_of(tag)
    layers = layers_of(content, image["RootFS"].get("Layers") or [])
    offer = {
        "name": f"{REPOSITORY}@{digest}",
        "tag": tag,
        "ids": sorted({image["Id"], digest, content.get("config", {}).get("digest", digest)}),
        "size": image.get("Size", 0),
        "layers": layers,
    }
    return offer, fresh


def check_room(image: dict[str, Any]) -> None:
    """Raise ValueError where the registry's copy of a first image doesn't fit."""
    if os.path.exists(FOLDER):
        return
    free, needed = shutil.disk_usage("/var/lib").free, image.get("Size", 0) * _COMPRESSED
    if free < needed:
        raise ValueError(
            f"handing the image on takes {needed / 1e9:.1f} GB under /var/lib, {free / 1e9:.1f} are free: free some"
        )


def check_room_to_pull(engine: Engine, name: str, home: str) -> None:
    """Raise ValueError where a pull would fill the disk, as far as that is known.

    A registry says nothing that could be compared with layers on this node: with any image here the pull just starts.
    """
    size = None if engine.chains() else compressed_size(name, home)
    root = engine.root()
    free, needed = shutil.disk_usage(root).free, 2 * (size or 0)  # compressed, and unpacked at least as much again
    if free < needed:
        raise ValueError(
            f"the image needs at least {needed / 1e9:.1f} GB in {root} while it arrives, {free / 1e9:.1f} are free: "
            "free some"
        )


def remedy_of(problem: str, name: str, user: str) -> str:
    """Return the remedy for a pull that failed."""
    text = problem.lower()
    if "no space left" in text:
        return "free some (`docker system df` shows what images take)"
    if "denied" in text or "unauthorized" in text:
        return f"log in on this node as {user} with `docker login {name.partition('/')[0]}`"
    if "x509" in text:
        return (
            f"put the authority of that registry's certificate under /etc/docker/certs.d/{name.partition('/')[0]}/ here"
        )
    if "unknown" in text or "not found" in text:
        return "check the name and the digest (ringmaster_image)"
    return "correct this node's way to that registry, then `make provision TAGS=train_image` goes on"


def served(module: AnsibleModule) -> dict[str, Any]:
    """Do all of `state: served`."""
    parameters = module.params
    manifest, engine = Manifest(patience_s=parameters["seconds"]), Engine()
    image, pulled = obtain(manifest, engine, parameters)
    offer, fresh = serve(manifest, engine, image, parameters) if parameters["hand_on"] else ({}, False)
    forget_old(manifest, engine, image["Id"])
    return {
        "changed": pulled or fresh,
        "pulled": pulled,
        "offer": offer,
        "ansible_facts": {"ringmaster_image": describe(parameters["reference"], image)},
    }


def stopped(module: AnsibleModule) -> dict[str, Any]:
    """Do all of `state: stopped`, but nothing while another delivery from here goes on."""
    Manifest(patience_s=module.params["seconds"])  # keeps others out until this process ends
    if not in_use():
        stop()
        if module.params["tag"]:
            keep_only(module.params["tag"], module.params["user"])
    return {"changed": False}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["served", "stopped"], "default": "served"},
            "reference": {"type": "str", "default": ""},
            # Whether other nodes need the image from here.
            "hand_on": {"type": "bool", "default": True},
            # The SSH user, who runs the registry, and whose logins to registries are used.
            "user": {"type": "str", "required": True},
            "home": {"type": "path", "default": ""},
            # state stopped: of the one image that the registry keeps for the next time; without it, it keeps all.
            "tag": {"type": "str", "default": ""},
            "seconds": {"type": "float", "default": 3600},
        },
        supports_check_mode=True,
        required_if=[("state", "served", ("reference", "home"))],
    )
    if module.check_mode:
        module.exit_json(changed=module.params["state"] == "served", offer={})
    try:
        result = served(module) if module.params["state"] == "served" else stopped(module)
    except (OSError, ValueError, subprocess.SubprocessError, http.client.HTTPException) as error:
        stop_after_failure(module.params["state"])
        module.fail_json(msg=str(error))
    module.exit_json(**result)


def stop_after_failure(state: str) -> None:
    """Stop the registry where nobody else would."""
    if state == "served" and not in_use():
        stop()


if __name__ == "__main__":
    main()
