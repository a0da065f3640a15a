"""How a node is logged in at: read from what OpenSSH says it would do."""

import shlex
import subprocess
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh import known_hosts
from launcher.ssh.known_hosts import Key, parse_route
from launcher.ssh.login import Login, logins, parse_login

DIRECT = """user ops
hostname 10.0.0.1
port 2222
identitiesonly no
userknownhostsfile /none
"""
JUMP = ("-F", "/my config", "-o", "StrictHostKeyChecking=yes")


def login(text: str, jump: tuple[str, ...] = ()) -> Login:
    return parse_login(text, parse_route(text, Path("/pins")), (), jump)


def test_a_node_that_is_reached_directly(tmp_path: Path) -> None:
    mine, other = tmp_path / "my key", tmp_path / "other"
    mine.touch()
    other.touch()
    found = login(f"{DIRECT}identityfile {mine}\nidentityfile {tmp_path}/none\nidentityfile {other}\n")
    assert (found.user, found.route.address, found.route.port, found.proxy) == ("ops", "10.0.0.1", 2222, "")
    assert found.key_files == (str(mine), str(other)), "in ssh's order, those that are there"
    assert found.use_agent


@pytest.mark.parametrize(
    ("more", "uses"),
    [
        ("", True),
        ("identityagent SSH_AUTH_SOCK\n", True),
        ("identityagent none\n", False),
        ("identitiesonly yes\n", False),
    ],
)
def test_the_agent(more: str, uses: bool) -> None:
    text = DIRECT if "identitiesonly" not in more else DIRECT.replace("identitiesonly no\n", "")
    assert login(text + more).use_agent is uses


def test_a_proxy_command_is_used_with_what_ssh_would_fill_in() -> None:
    given = "ssh -W [%h]:%p -o 'User=a b' %r@bastion"
    filled = "ssh -W [10.0.0.1]:2222 -o 'User=a b' ops@bastion"
    assert login(f"{DIRECT}proxycommand {given}\n").proxy == filled
    assert login(f"{DIRECT}proxycommand none\nproxyjump none\n").proxy == ""


@pytest.mark.parametrize(
    ("jumps", "last"),
    [
        ("bastion", ["-W", "[10.0.0.1]:2222", "bastion"]),
        ("me@first:22,bastion", ["-J", "me@first:22", "-W", "[10.0.0.1]:2222", "bastion"]),
        ("a,b,c", ["-J", "a,b", "-W", "[10.0.0.1]:2222", "c"]),
    ],
)
def test_jump_hosts_are_an_ssh_of_their_own(jumps: str, last: list[str]) -> None:
    words = shlex.split(login(f"{DIRECT}proxyjump {jumps}\n", JUMP).proxy)
    alive = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6")
    assert words == ["ssh", *JUMP, "-o", "BatchMode=yes", *alive, *last]


def key_of(folder: Path, name: str) -> Key:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    kind, blob = path.with_suffix(".pub").read_text().split()[:2]
    return Key(kind=kind, blob=blob)


def host(config: Path, *more: str) -> Host:
    args = shlex.join(("-F", str(config), *more))
    return Host(name="node1", address="gpu", ssh=SshOptions(common_args=args))


def test_openssh_itself_is_asked(tmp_path: Path) -> None:
    """Its configuration, the names under which it knows a host, and what holds for the jump host too."""
    key = key_of(tmp_path, "key")
    pins, config = tmp_path / "known hosts", tmp_path / "my config"
    pins.write_text(f"the-alias {key.kind} {key.blob}\n")
    config.write_text(
        "Host gpu\n  HostName 10.0.0.9\n  User ops\n  Port 2200\n  HostKeyAlias the-alias\n  IdentitiesOnly yes\n"
        f'  IdentityFile "{tmp_path / "key"}"\n  ProxyJump bastion\n  UserKnownHostsFile /none\n'
    )
    found = logins([host(config)], pins)["node1"]
    assert (found.route.address, found.route.port, found.user) == ("10.0.0.9", 2200, "ops")
    assert (found.key_files, found.use_agent) == ((str(tmp_path / "key"),), False)
    assert found.keys == (key,), "under its alias"
    words = shlex.split(found.proxy)
    assert words[:3] == ["ssh", "-F", str(config)] and words[-3:] == ["-W", "[10.0.0.9]:2200", "bastion"]
    assert "StrictHostKeyChecking=yes" in words
    assert any(word.startswith("GlobalKnownHostsFile=") and str(pins) in word for word in words)
    assert not any("gpu" in word for word in words), "the node's own options are not the jump host's"


def test_options_that_ssh_can_not_take_are_said(tmp_path: Path) -> None:
    with pytest.raises(RingmasterError, match=r"node1: ssh refuses its options: .*; fix ansible_ssh_common_args"):
        logins([host(tmp_path / "config", "-o", "NoSuchOption=1")], tmp_path / "pins")


def test_of_the_keys_that_ssh_knows_only_ordinary_ones_are_trusted(tmp_path: Path) -> None:
    plain, revoked, authority, both = (key_of(tmp_path, name) for name in ("plain", "revoked", "authority", "both"))
    pins = tmp_path / "pins"
    lines = [
        f"10.0.0.1,other {plain.kind} {plain.blob} a comment",
        f"@revoked 10.0.0.1 {revoked.kind} {revoked.blob}",
        f"@cert-authority 10.0.0.* {authority.kind} {authority.blob}",
        f"10.0.0.1 {both.kind} {both.blob}",
        f"@revoked * {both.kind} {both.blob}",
        f"10.0.0.2 {revoked.kind} {revoked.blob}",
        f"10.0.0.1 {plain.kind} {plain.blob}",
    ]
    pins.write_text("\n".join(lines) + "\n")
    route = parse_route(f"hostname 10.0.0.1\nport 22\nuserknownhostsfile {pins}\n", pins)
    assert known_hosts.trusted(route) == [plain]
    assert {entry.marker for entry in known_hosts.entries(route)} == {"", "@revoked", "@cert-authority"}
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", pins], check=True, capture_output=True)
    assert "10.0.0.1," not in pins.read_text()
    assert known_hosts.trusted(route) == [plain], "names may be hashed"


def test_a_key_that_was_revoked_in_another_file_is_not_trusted_either(tmp_path: Path) -> None:
    key = key_of(tmp_path, "key")
    pins, mine = tmp_path / "pins", tmp_path / "mine"
    pins.write_text(f"10.0.0.1 {key.kind} {key.blob}\n")
    mine.write_text(f"@revoked * {key.kind} {key.blob}\n")
    text = f"hostname 10.0.0.1\nport 22\nuserknownhostsfile {mine}\nglobalknownhostsfile {pins}\n"
    assert known_hosts.trusted(parse_route(text, pins)) == []
