"""Ansible callback: loads what every worker needs before the first is forked. Speed only: ansible.cfg switches it on.

Ansible forks a process per task and host. What such a process loads is lost with it: without this, each loads all
filters and tests again, which takes longer than most tasks' decisions.
"""

from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import action_loader, filter_loader, test_loader

_ACTIONS = ("debug", "fail", "include_tasks", "normal", "set_fact", "validate_argument_spec")


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Does its work once, in Ansible's main process."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ringmaster_preload"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_play_start(self, play: Any) -> None:  # noqa: ARG002
        """Load the plugins, now that Ansible also knows those beside the playbook."""
        for loader in (filter_loader, test_loader):
            list(loader.all())
        for name in _ACTIONS:
            action_loader.get(f"ansible.builtin.{name}", class_only=True)
        action_loader.get("ringmaster_preflight", class_only=True)
