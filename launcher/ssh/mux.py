"""Opens channels over the connection of an OpenSSH that has already logged in (its control socket).

An `ssh` that holds a control socket can be asked to pass on the packets of SSH's connection protocol (RFC 4254) as they
are: "multiplexing in proxy mode", PROTOCOL.mux of OpenSSH, since 7.4. On the socket they travel without encryption: no
key exchange, no login, no rekeying. paramiko's Transport does the rest, with its first part left out. Everything of
paramiko that is not public is used here, and nowhere else.
"""

import socket
import struct
import threading
from pathlib import Path
from typing import Any

import paramiko
from paramiko.packet import Packetizer

from launcher.base.errors import ExitCode, RingmasterError

_HELLO, _VERSION = 1, 4
_PROXY, _PROXY_GRANTED = 0x1000000F, 0x8000000F
_ANSWER_S = 10.0
"""To get an answer from an ssh on this machine."""
_LONGEST = 1 << 20
"""Of one packet in bytes; OpenSSH sends no longer ones than a quarter of it."""


def connect(path: Path, name: str) -> paramiko.Transport:
    """Return a transport whose channels run over the connection of the ssh that listens at `path`.

    Args:
        name: the node's, for messages.

    Raises:
        OSError, EOFError, paramiko.SSHException: it doesn't answer, or doesn't speak this protocol.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        _send(connection, struct.pack(">II", _HELLO, _VERSION))
        _expect(connection, _HELLO)
        _send(connection, struct.pack(">II", _PROXY, 0))
        _expect(connection, _PROXY_GRANTED)
    except BaseException:
        connection.close()
        raise
    transport = _MuxTransport(connection, name)
    transport.begin()
    return transport


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack(">I", len(message)) + message)


def _expect(connection: socket.socket, kind: int) -> None:
    message = _exactly(connection, struct.unpack(">I", _exactly(connection, 4))[0])
    if message[:4] != struct.pack(">I", kind):
        raise paramiko.SSHException("this machine's ssh can't share its connection; OpenSSH 7.4 or newer is needed")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < min(size, _LONGEST):
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError("this machine's ssh has ended")
        data += piece
    return data


class _MuxPacketizer(Packetizer):  # type: ignore[misc]
    """Packets as they stand on the control socket: length, a byte for the padding that there is none of, payload."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._sending = threading.Lock()
        self._received = 0

    def write_all(self, out: bytes) -> None:
        """Leave out the line with which a fresh connection begins: all that a Transport writes by itself."""

    def start_handshake(self, timeout: float) -> None:
        """Give no limit: there is no handshake, and nothing comes until the first channel is opened."""

    def send_message(self, data: Any) -> None:
        """Send one packet."""
        payload = data.asbytes()
        with self._sending:
            super().write_all(struct.pack(">IB", len(payload) + 1, 0) + payload)

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Wait for the next packet; return its kind and its content."""
        (size,) = struct.unpack(">I", self.read_all(4))
        if not 2 <= size <= _LONGEST:
            raise paramiko.SSHException(f"a packet of {size} bytes from this machine's ssh")
        packet = self.read_all(size)
        message = paramiko.Message(packet[2:])
        message.seqno = self._received
        self._received += 1
        return packet[1], message


class _MuxTransport(paramiko.Transport):  # type: ignore[misc]
    """A Transport that begins where the key exchange and the login have ended."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        super().__init__(connection, packetizer_class=_MuxPacketizer)
        self.daemon = True
        self._node = name

    def begin(self) -> None:
        """Start the thread that reads."""
        self.active = True
        self.start()

    def open_channel(self, *args: Any, **options: Any) -> paramiko.Channel:
        """Open a channel.

        Raises:
            RingmasterError: sshd refuses it.
        """
        try:
            return super().open_channel(*args, **options)
        except paramiko.ChannelException as error:
            raise RingmasterError(
                f"{self._node}: its sshd opens no further session on a connection; set MaxSessions there to 10 or more",
                exit_code=ExitCode.CLUSTER,
            ) from error

    def _check_banner(self) -> None:
        """There is none."""

    def _send_kex_init(self) -> None:
        """Nothing is agreed upon: channels may be opened at once."""
        self.initial_kex_done = True
        self.authenticated = True
        self.clear_to_send.set()

    def _expect_packet(self, *kinds: int) -> None:
        """No packet is the first: a Transport would wait for the other end's proposal."""
