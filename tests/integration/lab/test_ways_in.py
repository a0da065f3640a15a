"""The ways in that OpenSSH knows, and any login shell behind them: what lets provisioning in lets jobs in."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.lab import Lab
from lab.nodes.node import Node
from launcher.cluster.transfer.data import list_data
from launcher.cluster.transfer.upload import upload_data
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh.connection import Remote
from launcher.ssh.pool import connected
from tests.support.cluster.agent import agent_with

pytestmark = [pytest.mark.timeout(600)]

SHELLS = {"tcsh": "/bin/tcsh", "csh": "/bin/bsd-csh", "fish": "/usr/bin/fish"}
WORDS = [
    "a!b",
    "!!",
    "!$ !echo",
    "it's",
    '"',
    "\\",
    "a\\\\b\\n",
    "$HOME",
    "`id`",
    "~",
    "*",
    "a\nb",
    "",
    "-n",
    "ü",
    "\udcff",
]
LONG = "not one word but many\n" * 2000
USER = "stranger"


@pytest.fixture(scope="module")
def node(shared_lab: Lab) -> Iterator[Node]:
    """A node with other shells than its own; they are removed again."""
    node = shared_lab["node1"]
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
    before = set(node.run("dpkg-query", "-W", "-f", "${Package}\n").split())
    node.run(*apt, "update")
    node.run(*apt, "install", "--no-install-recommends", "--yes", *SHELLS)
    yield node
    added = set(node.run("dpkg-query", "-W", "-f", "${Package}\n").split()) - before
    node.run(*apt, "purge", "--yes", *sorted(added))


@contextmanager
def account(node: Node) -> Iterator[Node]:
    """The node, with a user of its own who may use the engine and whom nobody can log in as yet."""
    node.run("useradd", "--create-home", "--groups", "docker", "--shell", "/bin/sh", USER)
    node.run("install", "-d", "-m", "700", "-o", USER, f"/home/{USER}/.ssh")
    try:
        yield node
    finally:
        node.run("userdel", "--force", "--remove", USER, check=False)


@pytest.fixture
def stranger(node: Node) -> Iterator[Node]:
    with account(node):
        yield node


def let_in(node: Node, *lines: str) -> None:
    """Make `lines` the user's authorized_keys."""
    node.run("sh", "-c", f"printf '%s\\n' \"$@\" > /home/{USER}/.ssh/authorized_keys", "sh", *lines)
    node.run("chown", USER, f"/home/{USER}/.ssh/authorized_keys")


def host(node: Node, lab: Lab, tmp_path: Path, text: str) -> Host:
    """The node under another name, as a configuration file of OpenSSH describes it."""
    config = tmp_path / f"config-of-{node.name}"
    config.write_text(
        f"Host gpu-*\n  HostName {node.address}\n  User {USER}\n  UserKnownHostsFile {lab.place.known_hosts}\n"
        f"  IdentitiesOnly yes\n{text}"
    )
    return Host(name=node.name, address="gpu-1", ssh=SshOptions(common_args=shlex.join(("-F", str(config)))))


def works(remote: Remote) -> None:
    """Words, input, exit codes, files and the engine's API arrive as they are."""
    sent = ["x", *WORDS, LONG]
    answer = remote.run(["sh", "-c", 'printf "%s\\0" "$@"; cat; exit 7', "sh", *sent], stdin=b"read!\n")
    assert answer.code == 7, answer.err
    assert answer.out == b"".join(f"{word}\0".encode(errors="surrogateescape") for word in sent) + b"read!\n"
    assert remote.sftp().stat("/etc/hostname").st_size
    assert remote.engine().ping()
    assert remote.port == 22


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell(stranger: Node, shared_lab: Lab, tmp_path: Path, shell: str) -> None:
    stranger.run("usermod", "--shell", SHELLS[shell], USER)
    let_in(stranger, Path(f"{shared_lab.place.key}.pub").read_text().strip())
    way = host(stranger, shared_lab, tmp_path, f"  IdentityFile {shared_lab.place.key}\n")
    with connected([way], tmp_path / "pins") as remotes:
        works(remotes["node1"])


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_fetches_from_another_whatever_the_login_shell(
    stranger: Node, shared_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "it's!").write_bytes(LONG.encode())
    mine, said = Path(f"{shared_lab.place.key}.pub").read_text().strip(), []
    with account(shared_lab["node2"]) as other:
        pair = (stranger, other)
        stranger.run("usermod", "--shell", SHELLS[shell], USER)
        as_user = ("su", USER, "-s", "/bin/sh", "-c")
        make = "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; cat ~/.ssh/id_ed25519.pub"
        let_in(stranger, mine, other.run(*as_user, make).strip())
        let_in(other, mine)
        other.run(*as_user, f"ssh-keyscan -t ed25519 {stranger.address} >~/.ssh/known_hosts")
        ways = [host(each, shared_lab, tmp_path, f"  IdentityFile {shared_lab.place.key}\n") for each in pair]
        with connected(ways, tmp_path / "pins") as remotes:
            tree = list_data(tmp_path / "set", said.append)
            folders = dict.fromkeys(remotes, f"/home/{USER}/data")
            path = upload_data(remotes, tree, folders, {each.name: each.address for each in pair}, said.append)
            assert remotes["node2"].run(["cat", f"/home/{USER}/data/{path}/it's!"]).text == LONG
    assert not [line for line in said if "can't fetch" in line]


def test_a_certificate(stranger: Node, shared_lab: Lab, tmp_path: Path) -> None:
    """The node trusts an authority; nobody's key is on it."""
    for name in ("authority", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    sign = ["ssh-keygen", "-q", "-s", tmp_path / "authority", "-I", "me", "-n", USER, tmp_path / "mine.pub"]
    subprocess.run(sign, check=True)
    let_in(stranger, f"cert-authority {(tmp_path / 'authority.pub').read_text().strip()}")
    with connected(
        [host(stranger, shared_lab, tmp_path, f"  IdentityFile {tmp_path}/mine\n")], tmp_path / "pins"
    ) as up:
        works(up["node1"])


def test_an_agent_of_ones_own_behind_a_proxy_command(
    stranger: Node, shared_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`IdentityAgent`, `%h` in a file's name; a command with `~`, `%n` and a redirection, by way of another node."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "way in").mkdir()
    key = tmp_path / f"key-of-{stranger.address}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    let_in(stranger, key.with_name(f"{key.name}.pub").read_text().strip())
    jump = f"ssh -F {shlex.quote(str(shared_lab.place.ssh_config))} -W %h:%p node2"
    with agent_with(key) as socket:
        key.unlink()  # only its public half is left, which names it to the agent
        text = f"  IdentityAgent {socket}\n  IdentityFile {tmp_path}/key-of-%h\n  ProxyCommand {jump} 2>~/'way in'/%n\n"
        with connected([host(stranger, shared_lab, tmp_path, text)], tmp_path / "pins") as remotes:
            works(remotes["node1"])
    assert (tmp_path / "way in" / "gpu-1").exists()
