"""Holds back the end of Python until Gloo's threads have let go of the last exchange.

After an exchange, Gloo's threads give its tensors back, and need Python's lock for that. A thread that asks for it
while Python shuts down is ended, which aborts the process: a program that has done its work fails
(docs/decisions/0034). The exit function registered first runs last, right before the shutdown. So ringmaster_exit.pth
imports this file, which registers one, whenever Python starts. In a program that doesn't use Gloo it does nothing.

requirements/install.sh copies both files into .venv, the Dockerfile into the image. So this is one file. It imports
only what Python has loaded by then, since every program waits for it.
"""

import atexit
import os
import sys
from time import monotonic, sleep  # as they are now: a program may replace those of the module (gevent)

_GLOO = "gloo"
"""In the name of each of its threads: pt_gloo_runloop, gloo_tcp_loop."""
_QUIET_SECONDS = 0.02
"""So long in a row, none of them may have run. One that waits for Python's lock sleeps too, but gets it meanwhile."""
_LONGEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_ASLEEP, _ENDED = "S", "X"


def wait_for_gloo(tasks: str = "/proc/self/task") -> None:
    """Return once Gloo's threads have been asleep for a while; at once if there are none."""
    if "torch.distributed" not in sys.modules:
        return
    try:
        files = [f"{tasks}/{thread}/stat" for thread in os.listdir(tasks)]
        files = [file for file in files if _GLOO in _name_and_state(file)[0]]
        began = quiet_since = monotonic()
        while files:
            sleep(_PAUSE_SECONDS)  # without Python's lock
            asleep = all(_name_and_state(file)[1] in (_ASLEEP, _ENDED) for file in files)
            now = monotonic()
            quiet_since = quiet_since if asleep else now
            if now - quiet_since >= _QUIET_SECONDS or now - began >= _LONGEST_SECONDS:
                return
    except BaseException:  # noqa: S110 - there is no /proc, or a signal's handler raises; Python ends as it would have
        pass


def _name_and_state(file: str) -> tuple[str, str]:
    """Return a thread's name and its state, which is one letter; see proc_pid_stat(5)."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stat:
            before, _, after = stat.read().rpartition(") ")
    except OSError:
        return "", _ENDED
    return before.partition("(")[2], after[:1]


atexit.register(wait_for_gloo)  # by the import: in a virtual environment, Python reads a .pth file twice
