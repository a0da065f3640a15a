"""Looks whether another node answers: `python3 -IS -c <this source> <address> <port>…`, on one of its peers.

It prints one JSON object: what each port answered, and what open connections say of the other node. It stands alone:
the standard library of Python 3.9, no sibling imports, nothing installed. It changes nothing.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from typing import Any

_CONNECT_S = 3.0
_GREETING_S = 3.0
_TABLE_S = 3.0
_STUCK = 3
"""So often the kernel has sent the same data again before a connection counts as stuck."""


def knock(address: str, port: int) -> str:
    """Return how a port answers.

    `greets`: something speaks. `closes`: something takes the connection and ends it. `silent`: it is taken, and nothing
    is said. `refuses`: the machine says that nobody listens. `nothing`: no answer.
    """
    try:
        with socket.create_connection((address, port), _CONNECT_S) as connection:
            connection.settimeout(_GREETING_S)
            try:
                return "greets" if connection.recv(1) else "closes"
            except ConnectionResetError:
                return "closes"
            except OSError:
                return "silent"
    except ConnectionRefusedError:
        return "refuses"
    except OSError:
        return "nothing"


def connections(table: str, address: str, apart: set[int]) -> dict[str, Any]:
    """Return what `ss -tinO` says of the open connections with `address`, except those at the ports `apart`.

    `heard_s`: seconds since data last came from there, None where there is no connection. `stuck`: whether there are
    some whose data is sent again and again.
    """
    heard, stuck = [], False
    for line in table.splitlines():
        words = line.split()
        if len(words) < 5 or words[0] != "ESTAB":
            continue
        ends = [word.rpartition(":") for word in words[3:5]]
        other = ends[1][0].strip("[]")
        if other.startswith("::ffff:"):
            other = other[len("::ffff:") :]
        if other.partition("%")[0] != address or any(end[2].isdigit() and int(end[2]) in apart for end in ends):
            continue
        heard += [int(milliseconds) / 1000 for milliseconds in re.findall(r"\blastrcv:(\d+)", line)]
        stuck = stuck or any(int(times) >= _STUCK for times in re.findall(r"\bbackoff:(\d+)", line))
    return {"heard_s": min(heard) if heard else None, "stuck": stuck}


def look(address: str, ports: list[int], greeting: set[int]) -> dict[str, Any]:
    """Return all that can be told of the node at `address`; at the ports `greeting`, sshd speaks first."""
    # First: a connection of our own would count as one of those that are open.
    try:
        words = ["ss", "-tinO"]
        table = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TABLE_S).stdout.decode()
        seen = connections(table, address, greeting)
    except (OSError, ValueError, subprocess.SubprocessError):
        seen = {"heard_s": None, "stuck": False}
    answers: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda port=port: answers.__setitem__(port, knock(address, port)), daemon=True)
        for port in ports
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_CONNECT_S + _GREETING_S + 1)
    return {"ports": {str(port): answers.get(port, "nothing") for port in ports}, **seen}


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[2:]]
    print(json.dumps(look(sys.argv[1], given, set(given[:-1]))))
