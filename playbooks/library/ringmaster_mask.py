#!/usr/bin/python
"""Ansible module: turns lines of others into comments, noted so that it can be undone."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.disk import read, write
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.names.masked_lines import with_masked


def mask(role: str, path: str, lines: list[str], check: bool) -> dict[str, str] | None:
    """Turn the lines into comments; return the difference, or None where the file has none of them."""
    old = read(path) or ""
    new = with_masked(old, lines)
    if new == old:
        return None
    if not check:
        Manifest().note(role, "mask", path)
        status = os.stat(path)
        write(path, new, mode=status.st_mode & 0o7777, uid=status.st_uid, gid=status.st_gid)
    return {"before_header": path, "after_header": path, "before": old, "after": new}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "lines": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        diff = mask(module.params["role"], module.params["path"], module.params["lines"], module.check_mode)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=diff is not None, diff=diff or {})


if __name__ == "__main__":
    main()
