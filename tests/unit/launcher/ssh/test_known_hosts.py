"""Host keys: read from ssh's own tools, pinned once."""

import subprocess
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.ssh import known_hosts
from launcher.ssh.known_hosts import Key


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, str]:
    """A real key and the fingerprint that OpenSSH gives it."""
    path = tmp_path_factory.mktemp("key") / "k"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    kind, blob = path.with_suffix(".pub").read_text().split()[:2]
    said = subprocess.run(["ssh-keygen", "-lf", path], check=True, capture_output=True, text=True).stdout
    return Key(kind=kind, blob=blob), said.split()[1]


def test_the_fingerprint_is_openssh_s(key: tuple[Key, str]) -> None:
    assert key[0].fingerprint == key[1]
    assert known_hosts.fingerprint("no key!") == ""


def test_a_scan_is_read(key: tuple[Key, str]) -> None:
    line = f"10.0.0.1 {key[0].kind} {key[0].blob}\n"
    other = f"10.0.0.1 ecdsa-sha2-nistp256 {key[0].blob}\n"
    found = known_hosts.parse_scan(f"# 10.0.0.1:22 SSH-2.0\n{other}{line}{line}broken\n")
    assert [each.kind for each in found] == ["ssh-ed25519", "ecdsa-sha2-nistp256"]


@pytest.mark.parametrize(
    ("has", "options", "asked"),
    [
        ("ed25519 ecdsa rsa", "", ["ed25519"]),
        ("ecdsa rsa", "", ["ed25519", "ecdsa,rsa"]),
        ("ed25519 rsa", "hostkeyalgorithms rsa-sha2-512,rsa-sha2-256\n", ["ecdsa,rsa"]),
        ("", "", ["ed25519", "ecdsa,rsa"]),
    ],
)
def test_a_host_is_asked_with_as_few_connections_as_will_do(
    has: str, options: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[Key, str]
) -> None:
    """ssh-keyscan makes one for each kind; none of them logs in, and firewalls and sshds count that."""
    program, notes = tmp_path / "ssh-keyscan", tmp_path / "asked"
    program.write_text(
        f"""#!/bin/sh
echo "$4" >>{notes}
for kind in {has}; do
    case ,$4, in *,$kind,*) echo "a ssh-$kind {key[0].blob}" ;; esac
done
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    route = known_hosts.parse_route(f"hostname a\nport 22\n{options}", tmp_path / "pins")
    assert len(known_hosts.scan({"a": route})["a"]) == len([kind for kind in has.split() if kind in asked[-1]])
    assert notes.read_text().split() == asked


def test_what_ssh_would_use_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    mine, pins = folder / "mine", folder / "known_hosts"
    mine.touch()
    pins.touch()
    text = f"hostname 10.0.0.1\nport 2222\nuserknownhostsfile /none {mine}\nglobalknownhostsfile /nowhere {pins}\n"
    route = known_hosts.parse_route(text, pins)
    assert (route.name, route.files, route.direct, route.uses_pins) == ("[10.0.0.1]:2222", (mine, pins), True, True)
    other = known_hosts.parse_route(text + "hostkeyalias gpu\nproxyjump bastion\n", tmp_path / "known_hosts")
    assert (other.name, other.direct, other.uses_pins) == ("gpu", False, False)


def test_pinning_adds_once_and_keeps_what_is_there(tmp_path: Path, key: tuple[Key, str]) -> None:
    pins = tmp_path / "known_hosts"
    pins.write_text("# mine\nold ssh-rsa AAAA")  # no newline at its end
    for _ in range(2):
        known_hosts.pin(pins, [("[10.0.0.1]:2222", key[0])])
    line = f"[10.0.0.1]:2222 {key[0].kind} {key[0].blob}\n"
    assert pins.read_text() == f"# mine\nold ssh-rsa AAAA\n{line}"
    assert pins.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["known_hosts"]
    route = known_hosts.parse_route(f"hostname 10.0.0.1\nport 2222\nuserknownhostsfile {pins}\n", pins)
    assert known_hosts.known(route) == [(pins, 3, key[0])]


def test_a_file_that_can_not_be_written_is_said(tmp_path: Path, key: tuple[Key, str]) -> None:
    with pytest.raises(RingmasterError, match="can't be pinned") as raised:
        known_hosts.pin(tmp_path / "none" / "known_hosts", [("a", key[0])])
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def key_of(folder: Path, name: str) -> Key:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    kind, blob = path.with_suffix(".pub").read_text().split()[:2]
    return Key(kind=kind, blob=blob)


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
    route = known_hosts.parse_route(f"hostname 10.0.0.1\nport 22\nuserknownhostsfile {pins}\n", pins)
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
    assert known_hosts.trusted(known_hosts.parse_route(text, pins)) == []
