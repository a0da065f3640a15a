#!/usr/bin/python
"""Ansible module: reads a node once, for everything that the roles decide by. Sets `ansible_facts.ringmaster`.

It is the only task that touches a node on which nothing differs: everything else is decided from what it returns.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.blocks import block_of
from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.engine.in_use import in_use
from ansible.module_utils.ringmaster.engine.look import look_engine
from ansible.module_utils.ringmaster.firewall.look import look_firewall
from ansible.module_utils.ringmaster.folders.look import look_folders
from ansible.module_utils.ringmaster.image.look import look_image
from ansible.module_utils.ringmaster.ssh.node_key import is_ours, public_file
from ansible.module_utils.ringmaster.system.gpus import look_gpus
from ansible.module_utils.ringmaster.system.look import look_system
from ansible.module_utils.ringmaster.system.network import look_network

# Blocks in others' files, and files of ours. A path that begins with ~ is in the SSH user's home.
BLOCKS = (
    "/etc/hosts",
    "/etc/nccl.conf",
    "/etc/ssh/ssh_known_hosts",
    "~/.bashrc",
    "~/.ssh/authorized_keys",
    "/etc/fstab",
)
WHOLE = (
    "/etc/ringmaster/comm.env",
    "/etc/ssh/ssh_config.d/ringmaster.conf",
    "/etc/docker/daemon.json",
    "/etc/exports.d/ringmaster.exports",
)


def files(home: str) -> dict[str, dict[str, Any] | None]:
    """Return the files that we manage, by path: our block's text (None without one) or the file's, mode and owner."""
    managed: dict[str, dict[str, Any] | None] = {}
    for path in (*BLOCKS, *WHOLE):
        real = path.replace("~", home, 1)
        text = read(real)
        if text is None:
            managed[real] = None
            continue
        seen = os.stat(real)
        shown = _block(text) if path in BLOCKS else text
        managed[real] = {"text": shown, "mode": f"{seen.st_mode & 0o7777:04o}", "owner": _name(seen.st_uid)}
    return managed


def public_key(manifest: Manifest) -> str | None:
    """Return the public half of the key that we made for the SSH user; None also where another's lies in its place."""
    ours = (one for one in manifest.entries if one["kind"] == "key" and is_ours(one) and public_file(one["name"]))
    return next((str(one["public"]) for one in ours), None)


def look(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return all facts of this node."""
    system = look_system()
    user = system["user"]
    manifest = Manifest(lock=False)
    return {
        **system,
        "clock_offset_s": round(system["clock"] - parameters["sent"], 1) if parameters["sent"] else None,
        **look_gpus(),
        **look_engine(user["name"]),
        "network": look_network(parameters["peers"], parameters["interface"], parameters["address"]),
        "firewall": look_firewall(),
        **look_image(parameters["image"]),
        **look_folders(parameters["folders"], manifest),
        "files": files(user["home"]),
        "public_key": public_key(manifest),
        "in_use": in_use(),
        "packages_of": sorted({entry["role"] for entry in manifest.entries if entry["kind"] == "packages"}),
        "changed_by_us": sorted({entry["role"] for entry in manifest.entries}),
    }


def _block(text: str) -> str | None:
    """Return our block's text.

    A damaged block counts as none: the task that writes it, or takes it out, names the file and what is wrong.
    """
    try:
        return block_of(text)
    except ValueError:
        return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "peers": {"type": "dict", "default": {}},
            "interface": {"type": "str", "default": ""},
            "address": {"type": "str", "default": ""},
            "image": {"type": "str", "default": ""},
            "folders": {"type": "list", "elements": "str", "default": []},
            # The controller's clock when the task was sent off, in seconds of the epoch.
            "sent": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    try:
        facts = look(module.params)
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=f"can't look at this node: {error}")
    module.exit_json(changed=False, ansible_facts={"ringmaster": facts})


if __name__ == "__main__":
    main()
