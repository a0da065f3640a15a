#!/usr/bin/python
"""Ansible module: takes back what a role changed on this node, from the node's manifest, the newest change first.

A change that can't be taken back stays in the manifest, with the reason, and the rest goes on. At the end of a reset
the module is called without a role, and fails where anything is left.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.core.undo import undo_block, undo_file, undo_folder, undo_json
from ansible.module_utils.ringmaster.engine.in_use import refuse_in_use
from ansible.module_utils.ringmaster.engine.undo import undo_engine, undo_group
from ansible.module_utils.ringmaster.firewall.undo import undo_firewall
from ansible.module_utils.ringmaster.folders.undo import undo_store
from ansible.module_utils.ringmaster.image.undo import undo_image, undo_registry
from ansible.module_utils.ringmaster.names.undo import undo_mask
from ansible.module_utils.ringmaster.packages.undo import undo_hold, undo_packages
from ansible.module_utils.ringmaster.ssh.undo import undo_key

KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "file": undo_file,
    "block": undo_block,
    "json": undo_json,
    "folder": undo_folder,
    "store": undo_store,
    "key": undo_key,
    "mask": undo_mask,
    "firewall": undo_firewall,
    "packages": undo_packages,
    "hold": undo_hold,
    "group": undo_group,
    "engine": undo_engine,
    "image": undo_image,
    "registry": undo_registry,
}


def take_back(manifest: Manifest, role: str, keep: list[str], check: bool) -> tuple[list[str], list[str]]:
    """Return what was taken back (in check mode: would be), and what could not be, with the reason.

    The reason is kept in the entry too, for the report at the end: other roles are still taken back.
    """
    done, problems = [], []
    for entry in manifest.of_role(role):
        what = f"{entry['kind']} {entry['name']}"
        try:
            if not check:
                if entry["kind"] not in keep:
                    KINDS[entry["kind"]](entry)
                manifest.remove(entry)
            done.append(what)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            entry["problem"] = str(error)
            manifest.save()
            problems.append(f"{what}: {error}")
    return done, problems


def refuse(manifest: Manifest, role: str, keep: list[str]) -> None:
    """Refuse to take back packages of a role while that would disturb running containers, before anything else goes.

    Raises:
        ValueError: who runs there, and what to do.
    """
    if "packages" not in keep and any(entry["kind"] == "packages" for entry in manifest.of_role(role)):
        refuse_in_use()


def leftovers(manifest: Manifest) -> list[str]:
    """Return what could not be taken back, each with its reason."""
    return [f"{one['kind']} {one['name']}: {one['problem']}" for one in manifest.entries if one.get("problem")]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            # Without a role: only report what could not be taken back, and fail if there is anything.
            "role": {"type": "str", "default": ""},
            "keep": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        manifest = Manifest()
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    if not module.params["role"]:
        left = leftovers(manifest)
        if left:
            module.fail_json(msg=f"could not be taken back: {'; '.join(left)}; correct that there, and reset again")
        module.exit_json(changed=False)
    try:
        refuse(manifest, module.params["role"], module.params["keep"])
    except ValueError as error:
        module.fail_json(msg=f"its packages can't be removed: {error}")
    done, problems = take_back(manifest, module.params["role"], module.params["keep"], module.check_mode)
    module.exit_json(changed=bool(done), taken_back=done, left=problems)


if __name__ == "__main__":
    main()
