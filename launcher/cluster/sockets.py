"""The sockets of a node, as /proc/net/tcp tells."""

_ESTABLISHED, _LISTEN = "01", "0A"  # the kernel's tables
SOCKETS = ("sh", "-c", "cat /proc/net/tcp; cat /proc/net/tcp6 2>/dev/null || true")
"""Prints a node's sockets. torch listens on, and connects from, addresses of version 6 also where all are of 4."""


def has_socket(table: str, port: int, *, listening: bool = False) -> bool:
    """Whether `SOCKETS` shows a listener or (not `listening`) an open connection at `port`, at either end."""
    states = {_LISTEN} if listening else {_LISTEN, _ESTABLISHED}
    for row in table.splitlines():
        fields = row.split()
        if len(fields) < 4 or fields[0] == "sl":  # the head of each table
            continue
        ports = {int(end.rpartition(":")[2], 16) for end in fields[1:3]}
        if port in ports and fields[3] in states:
            return True
    return False
