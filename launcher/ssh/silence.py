"""Ends a connection whose other end has died without a word; one that is slow but lives is never cut.

The other end is asked for a sign of life again and again: sshd answers that itself, whatever runs there. An answer may
be late because it stands behind other data, so it is not waited for while anything still moves either way, by the
kernel's count.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import paramiko

_REQUEST = "keepalive@openssh.com"
_BYTES = struct.Struct("=120xQQ")
"""Of Linux's `struct tcp_info`: the bytes that the other end has acknowledged, and those that came from there."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long nothing may come."""

    every_s: float = 5.0
    """How often a sign of life is asked for; firewalls and NAT forget a connection that is silent for minutes."""
    limit_s: float = 30.0
    """How long nothing may move either way while an answer is due."""
    blind_s: float = 300.0
    """The same where nobody counts what moves: behind a jump host, and on other systems than Linux."""


class SilenceWatch:
    """Watches one connection in threads of its own, until it ends."""

    def __init__(self, transport: paramiko.Transport, patience: Patience) -> None:
        self.died = ""
        """Why the connection was ended; empty while it was not, by us."""
        self._transport = transport
        self._patience = patience
        self._ended = threading.Event()
        self._answered = 0
        self._due = False
        threading.Thread(target=self._ask, daemon=True).start()
        threading.Thread(target=self._judge, daemon=True).start()

    def stop(self) -> None:
        """End the threads."""
        self._ended.set()

    def _ask(self) -> None:
        with suppress(Exception):  # the connection has ended
            while not self._ended.wait(self._patience.every_s) and self._transport.is_active():
                self._due = True
                self._transport.global_request(_REQUEST, wait=True)
                self._answered += 1
                self._due = False
        if not self._transport.is_active():
            self._ended.set()

    def _judge(self) -> None:
        """Count the silence in short steps: a launcher that was stopped for a while has missed nothing."""
        step_s = self._patience.every_s / 5
        known, silent_s = self._moved(), 0.0
        while not self._ended.wait(step_s):
            now = self._moved()
            silent_s = 0.0 if now != known or not self._due else silent_s + step_s
            known = now
            limit_s = self._patience.blind_s if now[1] is None else self._patience.limit_s
            if silent_s >= limit_s:
                self.died = f"no sign of life for {limit_s:g} s"
                with suppress(Exception):
                    self._transport.close()
                return

    def _moved(self) -> tuple[int, tuple[int, int] | None]:
        return self._answered, _count(self._transport.sock)


def _count(connection: object) -> tuple[int, int] | None:
    """Return the bytes that were acknowledged and that came; None where nobody counts them."""
    getsockopt: Callable[[int, int, int], bytes] | None = getattr(connection, "getsockopt", None)
    option = getattr(socket, "TCP_INFO", None)
    if getsockopt is None or option is None:
        return None
    try:
        acknowledged, received = _BYTES.unpack_from(getsockopt(socket.IPPROTO_TCP, option, _BYTES.size))
        return acknowledged, received
    except (OSError, struct.error):
        return None
