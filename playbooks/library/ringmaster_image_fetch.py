#!/usr/bin/python
"""Ansible module: fetches the training image from another node, through an SSH connection to it.

`offer` is what `ringmaster_image_serve` returned there. The engine verifies what arrives: it is named by digest.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.engine import Engine
from ansible.module_utils.ringmaster.image.names import REPOSITORY, ROLE, describe, find_image, record, serving
from ansible.module_utils.ringmaster.image.prune import forget_old
from ansible.module_utils.ringmaster.image.registry import in_use, stop
from ansible.module_utils.ringmaster.image.space import room_needed
from ansible.module_utils.ringmaster.image.transfer import run
from ansible.module_utils.ringmaster.image.tunnel import Tunnel


def check_room(engine: Engine, offer: dict[str, Any]) -> None:
    """Raise ValueError where the image won't fit."""
    root = engine.root()
    free, needed = shutil.disk_usage(root).free, room_needed(offer["layers"], offer["size"], engine.chains())
    if free < needed:
        raise ValueError(
            f"the image needs {needed / 1e9:.1f} GB in {root} while it arrives, {free / 1e9:.1f} are free: "
            "free some (`docker system df` shows what images take)"
        )


def make_way() -> None:
    """Stop the registry that an interrupted delivery left on this node: it holds the port that the tunnel needs.

    Raises:
        ValueError: other nodes fetch from it.
    """
    if serving() and in_use():
        raise ValueError("this node hands another image on: wait until that delivery has ended")
    if serving():
        stop()


def fetch(manifest: Manifest, engine: Engine, parameters: dict[str, Any]) -> dict[str, Any]:
    """Pull the image, name it and record it; return what the engine knows of it.

    Raises:
        ValueError: it can't be fetched, or is not the source's.
    """
    offer = parameters["offer"]
    make_way()
    check_room(engine, offer)
    name = f"{REPOSITORY}:{offer['tag']}"
    manifest.note(ROLE, "image", name, only_name=False)
    manifest.note(ROLE, "image", offer["name"])
    with Tunnel(parameters["user"], parameters["source"]) as tunnel:
        run("pull", offer["name"], home="/", seconds=parameters["seconds"], keep=tunnel.keep)
    image = engine.inspect(offer["name"])
    if image is None or image["Id"] not in offer["ids"]:
        raise ValueError(f"the image that arrived is {image and image['Id']}, not {parameters['source']}'s")
    engine.tag(image["Id"], name)  # the next `docker image prune` would remove one without a tag
    record(manifest, parameters["reference"], image["Id"], offer["name"])
    return image


def deliver(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of it; an image that another delivery has brought meanwhile is not fetched again."""
    started = time.monotonic()
    manifest, engine = Manifest(patience_s=parameters["seconds"]), Engine()
    present = find_image(engine, parameters["reference"])
    image = present or fetch(manifest, engine, parameters)
    forget_old(manifest, engine, image["Id"])
    return {
        "changed": present is None,
        "took_s": None if present else round(time.monotonic() - started, 1),
        "ansible_facts": {"ringmaster_image": describe(parameters["reference"], image)},
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "reference": {"type": "str", "required": True},
            "offer": {"type": "dict", "required": True},
            # The node that serves it, by a name that `ssh` on this node knows, and the user who may log in there.
            "source": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "seconds": {"type": "float", "default": 3600},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        result = deliver(module.params)
    except (OSError, ValueError, subprocess.SubprocessError, http.client.HTTPException) as error:
        module.fail_json(
            msg=f"can't fetch the image from {module.params['source']}: {error}. "
            "Correct that, then `make provision TAGS=train_image` goes on"
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
