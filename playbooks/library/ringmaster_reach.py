#!/usr/bin/python
"""Ansible module: logs in at other nodes by SSH as the user who runs it, trusting only the machine's own host keys."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

# The user's own files don't count, only the machine's pinned keys.
_SSH = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=none"]
# How many at a time: all nodes do this at once, and sshd refuses logins at random when there are more than ten.
_AT_ONCE = 3
_TRIES = 3


def reach(target: str, seconds: int) -> str | None:
    """Return why `target` can't be reached, or None."""
    problem = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(attempt)
        done = subprocess.run(
            ["timeout", str(seconds * 2), *_SSH, "-o", f"ConnectTimeout={seconds}", "--", target, "true"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return None
        lines = done.stderr.strip().splitlines()
        problem = f"{target}: {lines[-1] if lines else f'no answer in {seconds * 2} s'}"
        if "closed by" not in problem and "reset by" not in problem:
            break
    return problem


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "targets": {"type": "list", "elements": "str", "required": True},
            "seconds": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    targets, seconds = module.params["targets"], module.params["seconds"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [one for one in pool.map(lambda target: reach(target, seconds), targets) if one is not None]
    if problems:
        module.fail_json(msg=f"can't log in from here at {'; '.join(problems)}: run provision again", problems=problems)
    module.exit_json(changed=False, reached=targets)


if __name__ == "__main__":
    main()
