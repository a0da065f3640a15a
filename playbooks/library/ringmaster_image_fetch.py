#!/usr/bin/python
"""Ansible module: fetches the training image along a chain of nodes, and hands it on to the next while it arrives.

`offer` is what `ringmaster_image_serve` returned on the first node of the chain. `state: linked` makes this node a
link: its relay runs. `state: fetched` has the engine pull through it, which verifies what arrives: it is named by
digest. That may take long: after `patience` seconds it returns how far it is (`done` is false), and the action plugin
of the same name asks again. `state: unlinked` stops the relay.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.delivery import BusyError
from ansible.module_utils.ringmaster.image.engine import Engine
from ansible.module_utils.ringmaster.image.names import REPOSITORY, ROLE, describe, find_image, record
from ansible.module_utils.ringmaster.image.prune import forget_old
from ansible.module_utils.ringmaster.image.registry import (
    FOLDER,
    arrived,
    claim,
    goes_on,
    join,
    keep_only,
    leave,
    make_room,
    moved,
    problem,
    renew,
    start,
    stop_left,
)
from ansible.module_utils.ringmaster.image.space import Place, bytes_missing, layers_missing, room_needed, short_of_room
from ansible.module_utils.ringmaster.image.unit import PULL

_LEAST = 1_000_000


def check_room(engine: Engine, offer: dict[str, Any]) -> None:
    """Raise ValueError where the image won't fit."""
    chains = engine.chains()
    relays, engines = room_needed(offer["layers"], offer["size"], chains)
    wanted = ((engine.root(), engines), (FOLDER, max(0, relays - arrived(_blobs(offer, chains)))))
    short = short_of_room([_place(folder, needed) for folder, needed in wanted])
    if short:
        raise ValueError(
            f"while the image arrives it needs {short}: free some (`docker system df` shows what images take)"
        )


def _blobs(offer: dict[str, Any], here: Sequence[Sequence[str]] = ()) -> list[str]:
    return [one["blob"] for one in layers_missing(offer["layers"], here)]


def _place(folder: str, needed: int) -> Place:
    parent = folder
    while not os.path.exists(parent):  # it is made when the relay starts
        parent = os.path.dirname(parent)
    return Place(folder, os.stat(parent).st_dev, shutil.disk_usage(parent).free, needed)


def link(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of `state: linked`; a delivery of the same image that goes on here is joined."""
    engine, offer = Engine(), parameters["offer"]
    own, name = {**parameters["delivery"], "image": offer["name"]}, offer["name"]
    if find_image(engine, parameters["reference"]) is not None:
        return {"changed": False}
    manifest = Manifest(patience_s=parameters["seconds"])
    if (PULL.runs(name) or (goes_on(name) and not PULL.begun(name))) and not problem():
        join(own, parameters["user"])
        return {"changed": False}
    claim(own, parameters["user"], first=False)
    PULL.stop()
    make_room(_blobs(offer))
    check_room(engine, offer)
    start(manifest, own, parameters["user"], parameters["before"])
    return {"changed": True}


def fetch(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of `state: fetched`; an image that another delivery has brought meanwhile is not fetched again."""
    renew(parameters["delivery"])
    manifest, engine, offer = Manifest(patience_s=parameters["seconds"]), Engine(), parameters["offer"]
    # One that our own pull has brought since the last question still has to be named and recorded.
    image = None if PULL.brings(offer["name"]) else find_image(engine, parameters["reference"])
    present, of = image is not None, 0
    if image is None:
        tag = f"{REPOSITORY}:{offer['tag']}"
        manifest.note(ROLE, "image", tag, only_name=False)
        manifest.note(ROLE, "image", offer["name"])
        if not PULL.begun(offer["name"]):
            PULL.begin("pull", offer["name"], parameters["seconds"])
        chains = engine.chains()
        of = max(_LEAST, bytes_missing(offer["layers"], chains))
        if not pulled(parameters["patience"]):
            have = arrived(_blobs(offer, chains))
            return {"changed": True, "done": False, "bytes": min(have, of), "of": of}
        image = engine.inspect(offer["name"])
        if image is None or image["Id"] not in offer["ids"]:
            raise ValueError(f"the image that arrived is {image and image['Id']}, not the one that was handed on")
        engine.tag(image["Id"], tag)  # the next `docker image prune` would remove one without a tag
        record(manifest, parameters["reference"], image["Id"], offer["name"])
        PULL.stop()
    forget_old(manifest, engine, image["Id"])
    return {
        "changed": not present,
        "done": True,
        "present": present,
        "bytes": of,
        "of": of,
        "moved": [] if present else moved(),
        "ansible_facts": {"ringmaster_image": describe(parameters["reference"], image)},
    }


def pulled(seconds: float) -> bool:
    """Wait at most so long for the engine's pull; return whether it has ended.

    Raises:
        ValueError: it failed, or its relay has given up. The engine would ask that again and again, and it doesn't
            always repeat the relay's reason.
    """
    try:
        ended = PULL.wait(seconds)
    except ValueError as error:
        raise ValueError(problem() or str(error)) from error
    if not ended and (reason := problem()):
        raise ValueError(reason)
    return ended


def unlink(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of `state: unlinked`; what an interrupted delivery left, after it brought the image, is stopped too."""
    if leave(parameters["delivery"]) or stop_left():
        PULL.stop()
        keep_only()
    return {"changed": False}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["linked", "fetched", "unlinked"], "default": "fetched"},
            "reference": {"type": "str", "default": ""},
            "offer": {"type": "dict", "default": {}},
            # As the filter `new_delivery` made it.
            "delivery": {"type": "dict", "required": True},
            # The nodes before this one in the chain, the nearest first, by names that `ssh` on this node knows, and the
            # user who may log in there.
            "before": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str", "default": ""},
            "seconds": {"type": "float", "default": 3600},
            "patience": {"type": "float", "default": 8},
        },
        supports_check_mode=True,
        required_if=[
            ("state", "linked", ("reference", "offer", "before", "user")),
            ("state", "fetched", ("reference", "offer")),
        ],
    )
    state = module.params["state"]
    if module.check_mode:
        module.exit_json(changed=state == "fetched")
    try:
        result = {"linked": link, "fetched": fetch, "unlinked": unlink}[state](module.params)
    except BusyError as error:
        module.fail_json(msg=str(error))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = "; ".join([str(error), *moved()])
        if leave(module.params["delivery"]):  # the nodes behind this one go on from those before it
            PULL.stop()  # what has arrived stays for the next run
        module.fail_json(
            msg=f"can't fetch the image: {why}. Correct that, then `make provision TAGS=train_image` goes on"
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
