#!/usr/bin/python
"""Ansible module: sets ufw with a way back, confirms the change through a new connection, and proves what is in effect.

Step `change` stores how ufw is, starts the timer that puts it back, and changes it. Step `confirm` stops the timer. It
must come by another connection, which proves that the operator can still log in. Step `verify` is read-only.
"""

from __future__ import annotations

import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.firewall import rollback
from ansible.module_utils.ringmaster.firewall.live import problems
from ansible.module_utils.ringmaster.firewall.rules import MODES, PATHS, Files, record, theirs, wanted
from ansible.module_utils.ringmaster.firewall.ufw import (
    entry_of,
    explain,
    is_installed,
    note,
    read_files,
    restart,
    store,
)


def change(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Make ufw what the mode asks for; `pending` says whether the change awaits its confirmation."""
    left_over = rollback.is_pending()
    if left_over and not check:
        rollback.roll_back()  # from a run that ended before its proof
    if not is_installed():
        return {"changed": left_over or parameters["mode"] == "cluster_only", "pending": False}
    manifest = Manifest()
    entry = entry_of(manifest, parameters["role"])
    now = read_files()
    own = theirs(now, entry)
    new = wanted(own, parameters["mode"], parameters["peers"], parameters["ssh_ports"])
    if new == now:
        if new == own and entry and not check:
            manifest.remove(entry)
        return {"changed": left_over, "pending": False}
    if not check:
        note(manifest, parameters["role"], own)
        apply(new, parameters["seconds"])
    return {"changed": True, "pending": not check, "diff": difference(now, new)}


def apply(new: Files, seconds: int) -> None:
    """Change ufw with the timer running; take a change that fails half-way back at once.

    Raises:
        ValueError: ufw fails; the message has its output.
    """
    try:
        rollback.arm(seconds)
        store(new)
        restart(new)
    except (OSError, subprocess.SubprocessError) as error:
        rollback.roll_back()
        raise ValueError(f"{explain(error)}; ufw was put back: correct that, and provision again") from error


def confirm(parameters: dict[str, Any]) -> dict[str, Any]:
    """Keep the change.

    Raises:
        ValueError: the node has taken it back meanwhile, or this is no proof.
    """
    if not rollback.is_proof():
        raise ValueError(
            "this connection also made the change, so it proves nothing: set no ControlPath of your own for this node"
        )
    manifest = Manifest()
    entry = entry_of(manifest, parameters["role"])
    now = read_files()
    if entry and rollback.is_pending():
        entry["written"] = record(now)
        manifest.save()
    if not rollback.disarm():
        raise ValueError("the node has put its firewall back before the proof came: is it slow? Run it again")
    if entry and theirs(now, entry) == now:
        manifest.remove(entry)
    return {"changed": False, "confirmed": True}


def verify(parameters: dict[str, Any]) -> dict[str, Any]:
    """Prove that the running firewall is what the mode asks for.

    Raises:
        ValueError: it isn't; the message has all differences.
    """
    differences = problems(parameters["mode"], parameters["peers"])
    if differences:
        raise ValueError("; ".join(differences))
    return {"changed": False}


def difference(now: Files, new: Files) -> list[dict[str, str]]:
    """Return what changes, as Ansible shows it."""
    return [
        {"before_header": path, "after_header": path, "before": now[path] or "", "after": new[path] or ""}
        for path in PATHS
        if now[path] != new[path]
    ]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "default": "firewall"},
            "step": {"type": "str", "choices": ["change", "confirm", "verify"], "required": True},
            "mode": {"type": "str", "choices": list(MODES), "default": "keep"},
            "peers": {"type": "dict", "default": {}},
            "ssh_ports": {"type": "list", "elements": "int", "default": []},
            # How long the change may stay without its proof.
            "seconds": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    try:
        if module.params["step"] == "change":
            result = change(module.params, module.check_mode)
        elif module.params["step"] == "confirm":
            result = confirm(module.params)
        else:
            result = verify(module.params)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        module.fail_json(msg=explain(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
