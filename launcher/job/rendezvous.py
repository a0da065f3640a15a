"""Rendezvous ports."""

import random
from collections.abc import Callable

from launcher.base.errors import ExitCode, RingmasterError

# Below Linux's ephemeral ports (32768 and up), so that no outgoing connection takes the port between choice and use.
PORTS = range(20000, 32000)


def first_free(is_free: Callable[[int], bool], where: str) -> int:
    """The first port that `is_free`; starts anywhere, so that two jobs at once do not collide.

    Raises:
        RingmasterError: none is, on the machine that is called `where`.
    """
    start = random.randrange(len(PORTS))  # noqa: S311 - no secret
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        if is_free(port):
            return port
    raise RingmasterError(
        f"every port from {PORTS.start} to {PORTS.stop - 1} on {where} is in use; see who, there: ss -ltnp",
        exit_code=ExitCode.NOT_STARTED,
    )
