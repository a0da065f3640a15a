#!/usr/bin/python
"""Ansible module: takes back what a role changed on this node, from the node's manifest, the newest change first.

What can't be taken back stays in the manifest, is named, and the rest is done all the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster_manifest import Manifest
from ansible.module_utils.ringmaster_undo_engine import undo_engine, undo_group
from ansible.module_utils.ringmaster_undo_files import undo_block, undo_file, undo_folder, undo_json
from ansible.module_utils.ringmaster_undo_firewall import undo_firewall
from ansible.module_utils.ringmaster_undo_image import undo_image, undo_registry
from ansible.module_utils.ringmaster_undo_key import undo_key
from ansible.module_utils.ringmaster_undo_mask import undo_mask
from ansible.module_utils.ringmaster_undo_packages import undo_hold, undo_packages

KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "file": undo_file,
    "block": undo_block,
    "json": undo_json,
    "folder": undo_folder,
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
    """Return what was taken back (in check mode: would be), and what could not be, with the reason."""
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
            problems.append(f"{what}: {error}")
    return done, problems


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "keep": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        manifest = Manifest()
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    done, problems = take_back(manifest, module.params["role"], module.params["keep"], module.check_mode)
    if problems:
        module.fail_json(msg=f"can't take back {'; '.join(problems)}", taken_back=done)
    module.exit_json(changed=bool(done), taken_back=done)


if __name__ == "__main__":
    main()
