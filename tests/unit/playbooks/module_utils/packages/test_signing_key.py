"""apt trusts every key in a file: only one key, the expected one, may be in what a vendor's address gives us."""

import base64
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ringmaster_source as module
from ansible.module_utils.ringmaster.engine.look import signing_keys
from ansible.module_utils.ringmaster.packages.signing_key import armored, dearmored, fingerprints
from hypothesis import given
from hypothesis import strategies as st

BODY = b"\x04" + bytes(range(50))
KEY = bytes([0x98, len(BODY)]) + BODY
FINGERPRINT = "A89A2E66D020CFEFCD92D0C9B67622777A37BBB8"


class Keyring:
    """Real keys, made by gpg; each with a subkey."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        for name in names:
            self.run("--quick-gen-key", name, "ed25519", "cert,sign", "never")
            self.run("--quick-add-key", self.fingerprint(name), "cv25519", "encr", "never")

    def run(self, *words: str, stdin: bytes = b"") -> bytes:
        command = ["gpg", "--homedir", str(self._folder), "--batch", "--quiet", "--passphrase", "", *words]
        return subprocess.run(command, input=stdin, check=True, capture_output=True).stdout

    def fingerprint(self, name: str) -> str:
        rows = self.run("--with-colons", "--list-keys", name).decode()
        match = re.search(r"^pub:.*\n^fpr:+(\w+):", rows, re.MULTILINE)
        assert match
        return match[1]

    def export(self, *names: str, armor: bool = True) -> bytes:
        return self.run(*(["--armor"] if armor else []), "--export", *names)

    def trusts(self, keys: str, signer: str) -> bool:
        """Ask gpgv, as apt does, whether a signature counts with these keys."""
        with tempfile.TemporaryDirectory() as folder:
            keyring, message, signature = (Path(folder) / name for name in ("keys.gpg", "message", "signature"))
            keyring.write_bytes(self.run("--dearmor", stdin=keys.encode()))
            message.write_bytes(b"Packages")
            signature.write_bytes(self.run("--local-user", signer, "--detach-sign", "--output", "-", str(message)))
            command = ["gpgv", "--keyring", str(keyring), str(signature), str(message)]
            return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def keyring() -> Iterator[Keyring]:
    if not (shutil.which("gpg") and shutil.which("gpgv")):
        pytest.skip("gpg and gpgv are not installed here")
    # Not pytest's folder: the path of the agent's socket may have 107 letters only.
    with tempfile.TemporaryDirectory() as folder:
        yield Keyring(Path(folder), "vendor", "attacker")
        subprocess.run(["gpgconf", "--homedir", folder, "--kill", "all"], check=True)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, str], str]:
    """What the module makes of a file at the vendor's address."""

    def signing_key(content: bytes, fingerprint: str) -> str:
        monkeypatch.setattr(module, "fetch", lambda address: content)
        spaced = " ".join(fingerprint[at : at + 4] for at in range(0, len(fingerprint), 4))
        return module.signing_key(
            {"key_url": "https://x", "fingerprint": spaced, "variable": "docker_engine_x", "otherwise": "y"}
        )

    return signing_key


@pytest.mark.parametrize("armor", [True, False])
def test_the_vendors_key_alone_is_written_as_apt_reads_it(
    keyring: Keyring, serve: Callable[[bytes, str], str], armor: bool
) -> None:
    text = serve(keyring.export("vendor", armor=armor), keyring.fingerprint("vendor"))
    assert keyring.trusts(text, "vendor")
    assert not keyring.trusts(text, "attacker")
    assert dearmored(text.encode()) == keyring.export("vendor", armor=False)


def test_a_key_that_was_added_to_the_vendors_is_refused(keyring: Keyring, serve: Callable[[bytes, str], str]) -> None:
    vendor, attacker = keyring.fingerprint("vendor"), keyring.fingerprint("attacker")
    files = [
        keyring.export("vendor", "attacker"),
        keyring.export("vendor") + keyring.export("attacker"),
        b"a comment\n" + keyring.export("vendor").replace(b"\n", b"\r\n") + b"\n\n" + keyring.export("attacker"),
        keyring.export("vendor", armor=False) + keyring.export("attacker", armor=False),
    ]
    for content in files:
        with pytest.raises(ValueError, match=f"holds 2 keys, not one .*{vendor} and {attacker}, not {vendor}"):
            serve(content, vendor)
    # What would have been written was trusted for the attacker's packages.
    assert keyring.trusts(files[0].decode(), "attacker")


def test_an_attackers_key_that_is_passed_off_as_a_subkey_is_trusted_by_nobody(keyring: Keyring) -> None:
    attacker = bytearray(keyring.export("attacker", armor=False))
    assert attacker[0] == 0x80 | 6 << 2
    as_subkey = bytes([0x80 | 14 << 2, *attacker[1 : 2 + attacker[1]]])
    mixed = keyring.export("vendor", armor=False) + as_subkey
    assert fingerprints(mixed) == [keyring.fingerprint("vendor")]
    assert not keyring.trusts(armored(mixed), "attacker")


def test_another_key_is_refused(keyring: Keyring, serve: Callable[[bytes, str], str]) -> None:
    expected = keyring.fingerprint("vendor")
    with pytest.raises(ValueError, match=f"is not the expected key .*{keyring.fingerprint('attacker')}, not"):
        serve(keyring.export("attacker"), expected)
    with pytest.raises(ValueError, match="its fingerprint is unreadable"):
        serve(b"<html>not found</html>", expected)
    with pytest.raises(ValueError, match="its fingerprint is unreadable"):
        serve(keyring.run("--export-secret-keys", "vendor"), expected)


def _packet(tag: int, body: bytes, octets: int | None) -> bytes:
    """A packet with a length of that many octets; of the new format where there is no such number."""
    if octets is None:
        return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body
    return bytes([0x80 | tag << 2 | {1: 0, 2: 1, 4: 2}[octets]]) + len(body).to_bytes(octets, "big") + body


@pytest.mark.parametrize("octets", [1, 2, 4, None])
def test_a_key_is_found_whatever_its_lengths_look_like(octets: int | None) -> None:
    key, name = _packet(6, BODY, octets), _packet(13, b"vendor", octets)
    assert fingerprints(key + name) == [FINGERPRINT]
    assert fingerprints(key + name + _packet(6, BODY, None)) == [FINGERPRINT] * 2
    assert fingerprints(KEY + b"\xcd\xc5\xfb" + b"n" * 1723 + key) == [FINGERPRINT] * 2  # two octets, new format


@pytest.mark.parametrize(
    "packets",
    [
        b"",
        KEY[:-1],
        KEY + b"the next packet",
        KEY + b"\x9b" + BODY,  # no length: all that follows
        KEY + b"\xcd\xe1" + b"nn" + b"\x01n",  # in parts
        _packet(14, BODY, 1) + KEY,
        KEY + _packet(8, KEY, 1),  # compressed
        KEY + _packet(5, BODY, 1),  # secret
        KEY + b"\xcd",
    ],
)
def test_what_cannot_be_read_to_its_end_is_no_key(packets: bytes) -> None:
    assert fingerprints(packets) == []


def test_a_key_of_another_version_counts_as_one() -> None:
    assert fingerprints(KEY + _packet(6, b"\x06" + BODY, 1)) == [FINGERPRINT, "that of a version 6 key"]


@given(
    st.lists(st.binary(min_size=1, max_size=300).map(lambda body: b"\x04" + body), min_size=1, max_size=4), st.data()
)
def test_every_key_is_counted(bodies: list[bytes], data: st.DataObject) -> None:
    lengths = [data.draw(st.sampled_from([1, 2, 4, None] if len(body) < 256 else [2, 4, None])) for body in bodies]
    keys = [_packet(6, body, octets) for body, octets in zip(bodies, lengths, strict=True)]
    cut = data.draw(st.integers(0, len(keys)))
    parts = [b"".join(part) for part in (keys[:cut], keys[cut:]) if part]
    text = "".join(armored(part) for part in parts).encode()
    assert len(fingerprints(dearmored(text))) == len(bodies)
    assert dearmored(text) == b"".join(keys)


def test_a_block_that_is_damaged_makes_the_file_unreadable() -> None:
    good = armored(KEY).encode()
    assert dearmored(good + good.replace(base64.b64encode(KEY)[:8], b"####****")) == b""
    headed = good.replace(b"BLOCK-----\n\n", b"BLOCK-----\nVersion: 1\nComment: a\n\n").replace(
        b"\n---", b"\n=abcd\n---"
    )
    assert fingerprints(dearmored(headed)) == [FINGERPRINT]


def test_the_probe_reads_each_file_of_ours(tmp_path: Path) -> None:
    for name, content in {
        "ringmaster-a.asc": armored(KEY + KEY).encode(),
        "other.asc": KEY,
        "ringmaster-b.asc": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert signing_keys(str(tmp_path)) == {
        str(tmp_path / "ringmaster-a.asc"): [FINGERPRINT] * 2,
        str(tmp_path / "ringmaster-b.asc"): [],
    }
