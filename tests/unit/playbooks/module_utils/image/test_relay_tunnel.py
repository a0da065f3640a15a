"""The image's relay fetches from other nodes through SSH, and says why where it can't."""

import json
import sys
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.image import relay
from ansible.module_utils.ringmaster.image.relay import Chain, SourceError, Store, Tunnel

from tests.support.image_relay import CONTENT, DIGEST, NAME, ask, running

# Stands in for ssh: joins the socket it is told to listen on to the port, as `-L SOCKET:127.0.0.1:PORT` does.
_SSH = """
import socket, sys, threading
place = sys.argv[sys.argv.index("-L") + 1]
path, _, port = place.rsplit(":", 2)
def join(one, other):
    while data := one.recv(1 << 16):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
with socket.socket(socket.AF_UNIX) as server:
    server.bind(path)
    server.listen()
    threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", int(port)))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=join, args=pair, daemon=True).start()
"""


def test_a_link_fetches_through_ssh_from_one_that_is_still_receiving(tmp_path: Path) -> None:
    (tmp_path / DIGEST).write_bytes(CONTENT)
    store = Store(str(tmp_path / "blobs"), None)
    (tmp_path / "blobs").mkdir()
    with running(Store(str(tmp_path), None)) as first:
        tunnel = Tunnel("node1", str(tmp_path / "s"), first.server_address[1], (sys.executable, "-c", _SSH))
        store.chain = Chain([("node1", tunnel.fetch)], pause_s=0)
        ask_through(store)


def ask_through(store: Store) -> None:
    with running(store) as server:
        assert ask(server, "GET", f"{NAME}/blobs/sha256:{DIGEST}")[2] == CONTENT
        missing = ask(server, "GET", f"{NAME}/blobs/sha256:{'0' * 64}")
    assert missing[0] == 404
    assert "the registry of this delivery hasn't it" in json.loads(missing[2])["errors"][0]["message"]


def test_why_ssh_fails_is_said(tmp_path: Path) -> None:
    """That is what ssh writes into its log (`-E`), and not sshd's banner, which it prints."""
    said = "echo 'ops@node1: Permission denied (publickey).' >>$1; echo 'No access for anybody else' >&2; exit 255"
    tunnel = Tunnel("node1", str(tmp_path / "s"), 1, ("sh", "-c", said))
    with pytest.raises(SourceError, match=r"^not reached by SSH: ops@node1: Permission denied \(publickey\)\.$"):
        tunnel.fetch(DIGEST, 0)


def test_why_ssh_forwards_nothing_is_said(tmp_path: Path) -> None:
    """ssh says so on the level INFO, and stays connected."""
    said = "channel 2: open failed: administratively prohibited: open failed"
    source = f"""
import socket, sys
assert "LogLevel=ERROR" not in {relay._SSH}
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[sys.argv.index("-L") + 1].rsplit(":", 2)[0])
    server.listen()
    while True:
        with server.accept()[0], open(sys.argv[sys.argv.index("-E") + 1], "a") as log:
            print("{said}", file=log)
"""
    tunnel = Tunnel("node1", str(tmp_path / "s"), 1, (sys.executable, "-c", source))
    with pytest.raises(SourceError, match=f"^{said}$"):
        tunnel.fetch(DIGEST, 0)
    assert tunnel._ssh is not None
    tunnel._ssh.kill()
    tunnel._ssh.wait()


@pytest.mark.parametrize(
    ("reason", "mended"),
    [
        ("not reached by SSH: Permission denied (publickey).", "make provision TAGS=ssh_mesh"),
        ("channel 2: open failed: administratively prohibited: open failed", "AllowTcpForwarding"),
        ("channel 2: open failed: connect failed: Connection refused", "whether node1 has failed"),
        ("the connection ended early", "whether node1 has failed"),
    ],
)
def test_a_remedy_is_said(reason: str, mended: str) -> None:
    assert mended in relay.remedy("node1", reason)
