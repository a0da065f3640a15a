#!/usr/bin/python
"""Ansible module: hands the training image on, after pulling it over the WAN if need be.

`state: served` returns what the other nodes need to fetch it. The engine may take long to compress it: after `patience`
seconds the module returns how far it is (`done` is false), and the action plugin of the same name asks again.
`state: stopped` ends the serving. The other nodes reach the relay only through an SSH connection (module
`ringmaster_image_fetch`): nothing listens on the network.
"""

from __future__ import annotations

import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.delivery import BusyError
from ansible.module_utils.ringmaster.image.engine import Engine
from ansible.module_utils.ringmaster.image.names import REPOSITORY, ROLE, canonical, describe, find_image
from ansible.module_utils.ringmaster.image.prune import forget_old
from ansible.module_utils.ringmaster.image.registry import (
    claim,
    filled,
    image_of,
    keep_only,
    leave,
    problem,
    renew,
    start,
    stop_left,
)
from ansible.module_utils.ringmaster.image.space import layers_of
from ansible.module_utils.ringmaster.image.transfer import pull, pushed_digest
from ansible.module_utils.ringmaster.image.unit import PULL, push_of, stop_pushes

_MAKE = "if one that has it failed, its line says why; else leave out LIMIT, or make the image again"


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
    if "@" not in name or name.startswith(REPOSITORY):
        raise ValueError(f"no node that is left in this run has the image {reference}: {_MAKE}")
    manifest.note(ROLE, "image", name)
    try:
        pull(name, home=parameters["home"], seconds=parameters["seconds"])
    except ValueError as error:
        remedy = remedy_of(str(error), name, parameters["user"])
        raise ValueError(f"can't pull {reference}: {str(error).replace(name, 'it')}: {remedy}") from error
    image = find_image(engine, reference)
    if image is None:
        raise ValueError(f"the engine pulled {reference}, but doesn't know it by that name: use another reference")
    return image, True


def serve(
    manifest: Manifest, engine: Engine, image: dict[str, Any], parameters: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Push it into the registry for a while; return the offer for the others, and whether a name was added here.

    The offer is {} as long as the push goes on.

    Raises:
        OSError, ValueError: the relay can't be started, or doesn't take it.
    """
    own, tag = parameters["delivery"], image["Id"].partition(":")[2][:12]
    name, push = f"{REPOSITORY}:{tag}", push_of(own["id"])
    fresh = False
    if not push.begun(name):
        fresh = manifest.find(ROLE, "image", name) is None
        _name(manifest, engine, image, name)
        start(manifest, own, parameters["user"])
        push.begin("push", name, parameters["seconds"])
    try:
        digest = pushed_digest(push.said()) if push.wait(parameters["patience"]) else ""
    except ValueError as error:  # the engine doesn't always repeat the relay's reason
        raise ValueError(f"the engine can't hand the image to its relay: {problem() or error}") from error
    if not digest:
        return {}, fresh
    push.stop()
    chain = image["RootFS"].get("Layers") or []
    content = image_of(digest, len(chain))
    offer = {
        "name": f"{REPOSITORY}@{digest}",
        "digest": digest,
        "tag": tag,
        "ids": sorted({image["Id"], digest, content.get("config", {}).get("digest", digest)}),
        "size": image.get("Size", 0),
        "layers": layers_of(content, chain),
    }
    return offer, fresh


def _name(manifest: Manifest, engine: Engine, image: dict[str, Any], name: str) -> None:
    """Give it the name under which it is pushed."""
    names = [*(image.get("RepoTags") or []), *(image.get("RepoDigests") or [])]
    nameless = all(one.startswith(REPOSITORY) for one in names)  # ours may be left of an image that was nameless before
    manifest.note(ROLE, "image", name, only_name=nameless)
    engine.tag(image["Id"], name)


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


def served(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of `state: served`."""
    renew(parameters["delivery"])
    manifest, engine = Manifest(patience_s=parameters["seconds"]), Engine()
    if parameters["hand_on"]:
        claim(parameters["delivery"], parameters["user"], first=True)
    image, pulled = obtain(manifest, engine, parameters)
    offer, fresh = serve(manifest, engine, image, parameters) if parameters["hand_on"] else ({}, False)
    if parameters["hand_on"] and not offer:
        return {"changed": pulled or fresh, "pulled": pulled, "done": False, "bytes": filled(), "of": 0}
    forget_old(manifest, engine, image["Id"])
    return {
        "changed": pulled or fresh,
        "pulled": pulled,
        "done": True,
        "offer": offer,
        "ansible_facts": {"ringmaster_image": describe(parameters["reference"], image)},
    }


def stopped(parameters: dict[str, Any]) -> dict[str, Any]:
    """Do all of `state: stopped`; what an interrupted delivery left is stopped too."""
    own = parameters["delivery"]
    if leave(own) if own else stop_left():
        PULL.stop()
        stop_pushes()
        if parameters["digest"]:
            keep_only(parameters["digest"])
    return {"changed": False}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["served", "stopped"], "default": "served"},
            "reference": {"type": "str", "default": ""},
            # Whether other nodes need the image from here.
            "hand_on": {"type": "bool", "default": True},
            # As the filter `new_delivery` made it; without it, `stopped` means an interrupted one.
            "delivery": {"type": "dict", "default": {}},
            # The SSH user, who runs the relay, and whose logins to registries are used.
            "user": {"type": "str", "required": True},
            "home": {"type": "path", "default": ""},
            # state stopped: of the one image that is kept, compressed, for the next time; without it, all are.
            "digest": {"type": "str", "default": ""},
            "seconds": {"type": "float", "default": 3600},
            "patience": {"type": "float", "default": 8},
        },
        supports_check_mode=True,
        required_if=[("state", "served", ("reference", "home", "delivery"))],
    )
    if module.check_mode:
        module.exit_json(changed=module.params["state"] == "served", offer={})
    try:
        result = served(module.params) if module.params["state"] == "served" else stopped(module.params)
    except BusyError as error:
        module.fail_json(msg=str(error))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        if module.params["delivery"]:
            push_of(module.params["delivery"]["id"]).stop()
            leave(module.params["delivery"])
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
