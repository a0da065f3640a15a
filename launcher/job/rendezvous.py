"""The port at which the ranks of a job meet on its head: from which range it comes, and how a free one is found.

A site knows how to ask whether a port is free there: `launcher.local.machine` tries to bind it, and the checks of a
cluster read the head's table of sockets. The choice is the same for both.
"""

import random
from collections.abc import Callable

from launcher.base.errors import ExitCode, RingmasterError

PORTS = range(20000, 32000)
"""Below Linux's ephemeral ports (32768 and up), so that no outgoing connection takes a port between choice and use."""


def first_free(is_free: Callable[[int], bool], where: str) -> int:
    """Return the first port for which `is_free` is true. The search starts anywhere, so that two jobs don't collide.

    Args:
        where: what the user calls the machine.

    Raises:
        RingmasterError: no port is free.
    """
    start = random.randrange(len(PORTS))  # noqa: S311 - no secret
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        if is_free(port):
            return port
    raise RingmasterError(
        f"every port from {PORTS.start} to {PORTS.stop - 1} on {where} is in use; see by what, there: ss -ltnp",
        exit_code=ExitCode.NOT_STARTED,
    )
