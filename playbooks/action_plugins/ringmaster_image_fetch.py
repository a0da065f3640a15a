"""Ansible action: runs the module of the same name until it is done, and notes how far it is meanwhile.

It stands for two modules, under two names (the second is a link): one brings the image to a node, one hands it on.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_NOTES = "RINGMASTER_PROGRESS"
"""The file that the launcher reads, as of the callback `ringmaster_table`."""


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Arguments: the module's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's last answer, and how long all took (`took_s`) where something was fetched."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        begun, did = time.monotonic(), dict.fromkeys(("changed", "pulled"), False)
        while True:
            answer = self._execute_module(module_args=self._task.args, task_vars=task_vars)
            did = {what: done or answer.get(what, False) for what, done in did.items()}
            if "bytes" in answer:
                note(task_vars or {}, answer)
            if answer.get("done", True):
                break
        took = None if answer.get("present", True) else round(time.monotonic() - begun, 1)
        return {**result, **answer, **did, "took_s": took}


def note(variables: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Append how many bytes a node has to the notes that the launcher's heartbeat is made of."""
    path = os.environ.get(_NOTES)
    if path:
        with Path(path).open("a", encoding="utf-8") as notes:
            notes.write(
                f"{time.time():.1f}\tbytes\t{answer['bytes']} {answer['of']} {variables['inventory_hostname']}\n"
            )
