"""Takes back changes of ufw: kind firewall. The role's own tasks do it before this, with a way back and a proof."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.ringmaster.firewall.rollback import is_pending, roll_back
from ansible.module_utils.ringmaster.firewall.rules import theirs
from ansible.module_utils.ringmaster.firewall.ufw import is_installed, read_files, restart, store


def undo_firewall(entry: dict[str, Any]) -> None:
    """Make ufw what it was, with the user's changes since then."""
    if is_pending():
        roll_back()
    if not is_installed():
        return
    now = read_files()
    own = theirs(now, entry)
    if own != now:
        store(own)
        restart(own)
