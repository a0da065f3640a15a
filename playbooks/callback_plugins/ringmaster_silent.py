"""Ansible stdout callback: prints nothing, so that the launcher can show a playbook's table alone.

Ansible's own errors still reach stderr, and the launcher takes the result from the `ringmaster_table` callback.
"""

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: ringmaster_silent
type: stdout
short_description: prints nothing
description:
  - Leaves the screen to others; errors of Ansible itself still reach stderr.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Takes the place of Ansible's default output; what is inherited prints nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "ringmaster_silent"
