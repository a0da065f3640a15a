"""One build at a time on a node, whoever asks for it: two of them would do the same work on the same disk."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from launcher.inventory.hosts import job_dir
from launcher.ssh.connection import Remote, Trouble

_LOCK = """
if (: >>"$1") 2>/dev/null; then exec 9>>"$1"; else  # not provisioned: then nobody else builds here either
    echo held
    exec cat >/dev/null
fi
flock --nonblock 9 || { echo waiting; flock 9; }
echo held
while timeout "$2" head -n 1 | grep -q .; do :; done
"""
"""Holds the lock for as long as lines arrive: a launcher that ends, or its line, lets it go.

A computer that vanishes without a word (its battery is empty, its network gone) closes nothing: sshd would learn of it
after hours. So silence counts as its end too. What a stall of a living launcher costs is little: somebody else may
build at the same time.
"""
_BEAT_S, _SILENCE_S = 10.0, 60.0
_TICK_S = 0.2


@contextmanager
def turn_to_build(remote: Remote, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other launcher builds on a node, and keep others waiting meanwhile.

    Raises:
        RingmasterError: the connection broke.
    """
    lock = _Lock(remote, say)
    try:
        lock.await_turn()
        yield
    finally:
        lock.let_go()


class _Lock:
    """A program on the node that holds the lock."""

    def __init__(self, remote: Remote, say: Callable[[str], None]) -> None:
        self._remote, self._say = remote, say
        self._heard = b""
        self._error: BaseException | None = None
        self._held, self._over = threading.Event(), threading.Event()
        self._path = f"{job_dir(remote.host)}/.image.lock"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def await_turn(self) -> None:
        """Return once the lock is ours, or can't be had on this node."""
        while not self._held.wait(_TICK_S):  # in short pieces: Ctrl-C gets in between
            pass
        if self._error is not None:
            raise self._error

    def let_go(self) -> None:
        """Let others build."""
        self._over.set()

    def _run(self) -> None:
        words = ["sh", "-c", _LOCK, "sh", self._path, str(_SILENCE_S)]
        try:
            self._remote.stream(words, stdin=self._until_over(), on_output=self._hear)
        except Trouble as error:
            self._error = error
        finally:
            self._held.set()

    def _until_over(self) -> Iterator[bytes]:
        while not self._over.wait(_BEAT_S):
            yield b"still here\n"

    def _hear(self, data: bytes) -> None:
        before, self._heard = self._heard, self._heard + data
        if b"waiting" in self._heard and b"waiting" not in before:
            self._say(f"another launcher builds an image on {self._remote.name}: waiting for its end")
        if b"held" in self._heard:
            self._held.set()
