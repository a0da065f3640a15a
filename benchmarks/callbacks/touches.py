"""Ansible callback of the benchmark: which tasks reached a node, and how long each took, as JSON lines."""

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

# These are carried out on the controller.
_LOCAL = {
    "assert",
    "debug",
    "fail",
    "import_role",
    "import_tasks",
    "include_role",
    "include_tasks",
    "meta",
    "ringmaster_line",
    "ringmaster_preflight",
    "set_fact",
    "validate_argument_spec",
}


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Appends to the file named by RINGMASTER_TOUCHES."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "touches"

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[tuple[str, str], float] = {}

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self.started[host.get_name(), task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        task = result.task
        if task.action.rpartition(".")[2] in _LOCAL:
            return
        node = result.host.get_name()
        seconds = time.monotonic() - self.started[node, task._uuid]
        with open(os.environ["RINGMASTER_TOUCHES"], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps({"task": task.get_name(), "node": node, "seconds": seconds}) + "\n")
