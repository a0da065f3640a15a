"""Ansible action: gives a node its line in the table that closes `make verify`."""

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Argument: `text`, what was proved of this node."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return it as `ringmaster_line`, which the table's callback looks for."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec={"text": {"type": "str", "required": True}})
        return {**result, "changed": False, "ringmaster_line": arguments["text"]}
