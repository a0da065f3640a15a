"""ufw on this node: its files, its program, and its entry in the manifest."""

from __future__ import annotations

import base64
import os
import subprocess
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read, state_of, write
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.firewall.rules import PATHS, Files, enabled

PROGRAM = "/usr/sbin/ufw"
KIND = "firewall"
_NAME = "ufw"
_INIT = "/lib/ufw/ufw-init"
_PATIENCE_S = 30


def is_installed() -> bool:
    return os.path.exists(PROGRAM)


def read_files() -> Files:
    return {path: read(path) for path in PATHS}


def entry_of(manifest: Manifest, role: str) -> dict[str, Any] | None:
    return manifest.find(role, KIND, _NAME)


def note(manifest: Manifest, role: str, own: Files) -> None:
    """Note how ufw is without us. `written` follows when the change is confirmed; without it nothing was kept."""
    states = {path: _state(path, text) for path, text in own.items()}
    entry = manifest.note(role, KIND, _NAME, before=states, written=None)
    entry["before"] = states  # changes of others since the last time count as theirs too
    manifest.save()


def store(files: Files) -> None:
    """Write the files that differ; mode and owner stay."""
    for path, text in files.items():
        state = state_of(path)
        if text is not None and state is not None and text != read(path):
            write(path, text, mode=state["mode"], uid=state["uid"], gid=state["gid"])


def restart(files: Files) -> None:
    """Make the running firewall follow the files.

    Raises:
        subprocess.CalledProcessError: ufw fails, or takes too long; it holds ufw's output.
    """
    # `timeout` ends all that it started: nothing of it goes on while the old files are put back.
    run(
        "timeout",
        "--kill-after=3",
        str(_PATIENCE_S),
        *([PROGRAM, "reload"] if enabled(files) else [_INIT, "force-stop"]),
    )


def run(*words: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout


def explain(error: Exception) -> str:
    """Return one line for the user."""
    if isinstance(error, subprocess.CalledProcessError):
        how = f"no end within {_PATIENCE_S} s" if error.returncode == 124 else f"exit status {error.returncode}"
        lines = (error.stderr or error.stdout or "").strip().splitlines() or [how]
        return f"`{' '.join(error.cmd)[:80]}` fails: {lines[-1]}"
    return str(error)


def _state(path: str, text: str | None) -> dict[str, Any] | None:
    state = state_of(path)
    if state is None or text is None:
        return None
    return {**state, "content": base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()}
