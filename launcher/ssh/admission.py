"""Opens connections a few at a time, and tries again where sshd turned one away before the login.

sshd drops connections at random once ten have not logged in yet (MaxStartups 10:30:100), its newer versions block an
address for a while that made many, and behind a jump host all nodes share one sshd.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 8
_PLACE_S = 3.0
"""How long an attempt keeps others waiting: a node that is off would keep them for ten seconds, and burdens nobody."""
_AGAIN_S = 20.0
"""How long it is tried again where sshd turns us away."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 4.0
_THREADS = 64


def admit(items: Sequence[T], attempt: Callable[[T, threading.Event], R], turned_away: Callable[[R], bool]) -> list[R]:
    """Make an attempt for each of `items`, few at a time; return the results in the items' order.

    Args:
        attempt: is given an event that is set when nobody waits for it any longer; it then ends soon.
        turned_away: whether a result means that sshd had no time for us, so that it is worth another attempt.
    """
    over = threading.Event()
    places = threading.Semaphore(AT_ONCE)

    def until_admitted(item: T) -> R:
        ends, pause_s = 0.0, _PAUSE_S
        while True:
            with _place(places):
                result = attempt(item, over)
            now = time.monotonic()
            ends = ends or now + _AGAIN_S
            if now > ends or over.is_set() or not turned_away(result):
                return result
            over.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  so that those turned away don't come together
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    with ThreadPoolExecutor(max_workers=max(1, min(_THREADS, len(items)))) as pool:
        futures = [pool.submit(until_admitted, item) for item in items]
        try:
            while not all(future.done() for future in futures):
                time.sleep(0.005)  # not `wait`, which would keep Ctrl-C out
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


@contextmanager
def _place(places: threading.Semaphore) -> Iterator[None]:
    """Take one of the places for a while, or for the time of an attempt if that is shorter."""
    places.acquire()
    given_back = threading.Lock()

    def give_back() -> None:
        if given_back.acquire(blocking=False):
            places.release()

    timer = threading.Timer(_PLACE_S, give_back)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        give_back()
