"""Runs programs with a time limit. One that can't even be killed, because it hangs in the kernel, is left behind."""

from __future__ import annotations

import subprocess
from typing import Any

PATIENCE_S = 60.0


def finished(words: list[str], limit_s: float = PATIENCE_S, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return what it printed, and its exit code.

    Args:
        how: as for `subprocess.Popen`; `text` is what it reads, by default nothing.

    Raises:
        TimeoutError: it has not ended in time; the message is for the user.
        OSError: it can't be started.
    """
    text = how.pop("text", None)
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        errors="replace",
        **how,
    )
    try:
        out, err = process.communicate(text, timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Not subprocess.run: it waits for what it has killed, and a process that hangs in the kernel does not die.
        process.kill()
        raise TimeoutError(f"{' '.join(words[:3])} has not ended in {limit_s:g} s") from None
    return subprocess.CompletedProcess(words, process.returncode, out, err)
