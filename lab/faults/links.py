"""Links between nodes: makes one slow, and measures how much it carries."""

import shlex
from dataclasses import dataclass

from lab.base import check
from lab.faults.fault import Fault, setting
from lab.nodes.node import Node

_PORT = 5201
# Counts what arrives within the seconds given, after a first half second that fills buffers and buckets.
_RECEIVE = """
import socket, sys, time
seconds = float(sys.argv[2])
with socket.create_server((sys.argv[1], int(sys.argv[3]))) as server:
    server.settimeout(20)
    connection, _ = server.accept()
    warm, begin, total = time.monotonic() + 0.5, None, 0
    while True:
        data = connection.recv(1 << 18)
        now = time.monotonic()
        if begin is None and now >= warm:
            begin, total = now, 0
        elif begin is not None:
            total += len(data)
            if now - begin >= seconds or not data:
                break
print(total * 8 / (now - begin))
"""
_SEND = """
import contextlib, socket, sys, time
until = time.monotonic() + 20
while True:
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.05)
with contextlib.suppress(OSError), connection:
    while time.monotonic() < until:
        connection.sendall(bytes(1 << 16))
"""


@dataclass(frozen=True)
class Shape(Fault):
    """The node sends at a limited rate, on each of its cards. For both directions shape both nodes."""

    node: Node
    rate: str = setting("1gbit", "such as 100mbit or 1gbit")

    def __post_init__(self) -> None:
        check.pattern("--rate", self.rate, r"[1-9]\d{0,5}[kmg]bit", "such as 100mbit or 1gbit")

    def apply(self) -> None:
        for device in self.node.devices():
            self.node.run(
                "tc", "qdisc", "replace", "dev", device, "root", "tbf",
                "rate", self.rate, "burst", "256k", "latency", "50ms",
            )  # fmt: skip

    def undo(self) -> None:
        if self.node.state in {"running", "paused"}:  # a node that is down has lost it
            for device in self.node.devices():
                self.node.run("tc", "qdisc", "del", "dev", device, "root", check=False)


def bandwidth(sender: Node, receiver: Node, *, seconds: float = 2.0) -> float:
    """Return how many bits a second pass from one node to the other, measured with one TCP connection."""
    door = ("-p", "tcp", "-s", sender.address, "--dport", str(_PORT), "-j", "ACCEPT")
    receiver.run("iptables", "-w", "-I", "INPUT", *door)
    try:
        send = f"python3 -c {shlex.quote(_SEND)} {receiver.address} {_PORT}"
        sender.container.exec_run(["sh", "-c", send], detach=True)
        return float(receiver.run("python3", "-c", _RECEIVE, receiver.address, str(seconds), str(_PORT)))
    finally:
        receiver.run("iptables", "-w", "-D", "INPUT", *door)
