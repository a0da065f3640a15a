"""Which delivery works on this node: its mark in the relay's folder, by which a second one finds it.

A delivery is a dict: `id`, `by` (who, on which computer), `since` (Unix time). As a mark it also has `first` (whether
its chain begins here), `user` (who runs the relay), `shared` (whether an earlier delivery used that relay) and, on a
link, `image` (which arrives there, by digest). The controller asks a link for its progress every few seconds, which
renews the mark; that of an interrupted delivery gets old.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read, write

STALE_S = 60.0
"""Longer than a controller with many nodes needs from one question to the next."""


class BusyError(ValueError):
    """Another delivery works on this node."""


def mark_of(path: str) -> dict[str, Any]:
    """Return the mark; {} where there is none."""
    try:
        known = json.loads(read(path) or "{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


def take(path: str, delivery: dict[str, Any], *, first: bool, user: str, shared: bool = False) -> None:
    """Make the mark this delivery's. Its folder must be there."""
    mark = {**delivery, "first": first, "user": user, "shared": shared}
    write(path, json.dumps(mark) + "\n", mode=0o644, uid=os.geteuid(), gid=os.getegid())


def renew(path: str, delivery: dict[str, Any]) -> None:
    """Say that this delivery goes on, if the mark is its own."""
    if mark_of(path).get("id") == delivery["id"]:
        os.utime(path)


def fresh(path: str, now: float) -> bool:
    """Return whether the mark was renewed a short while before `now` (Unix time)."""
    with contextlib.suppress(FileNotFoundError):
        return now - os.stat(path).st_mtime < STALE_S
    return False


def refusal(mark: dict[str, Any]) -> BusyError:
    """Return the words for whoever comes second."""
    since = time.strftime("%H:%M UTC", time.gmtime(float(mark.get("since") or 0)))
    return BusyError(
        f"{mark.get('by') or 'somebody'} has been delivering an image here since {since}: wait until that has ended, "
        "then run this again"
    )
