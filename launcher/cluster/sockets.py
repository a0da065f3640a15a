"""Whether a node has a socket at a port, told by the kernel's tables of it."""

from launcher.on_node.probe import ESTABLISHED, LISTEN, sockets

SOCKETS = ("sh", "-c", "cat /proc/net/tcp; cat /proc/net/tcp6 2>/dev/null || true")
"""Prints a node's sockets. torch listens on, and connects from, IPv6 addresses even where all addresses are IPv4."""


def has_socket(table: str, port: int, *, listening: bool = False) -> bool:
    """Return whether `SOCKETS` shows a listener or (not `listening`) an open connection at `port`, at either end."""
    states = {LISTEN} if listening else {LISTEN, ESTABLISHED}
    return any(port in (row.port, row.remote_port) and row.state in states for row in sockets(table))
