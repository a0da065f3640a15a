"""Passwords reach ansible-playbook through pipes: not on its command line, not in its environment, not asked again."""

import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from launcher.inventory.passwords import Passwords
from launcher.inventory.vault import VaultPasswords
from launcher.provision import playbook
from launcher.provision.handover import handed_over

GIVEN = Passwords(
    vault=VaultPasswords(listed=(("dev", b"v-one"), ("prod", b"v-two")), of_file=(("default", b"v-file"),)),
    sudo="s-geheim",
    ssh="l-geheim",
)

# What ansible-playbook does with its settings, through Ansible's own functions.
READER = """
import os, sys
from pathlib import Path
from ansible import context
from ansible import constants as C
from ansible.cli.playbook import PlaybookCLI
from ansible.parsing.dataloader import DataLoader
own = [Path(f"/proc/self/{name}").read_bytes().decode() for name in ("cmdline", "environ")]
assert not [word for word in ("v-one", "v-two", "v-file", "s-geheim", "l-geheim") for each in own if word in each]
program = PlaybookCLI(["ansible-playbook", "site.yml"])
program.parse()
options = context.CLIARGS
print(program.ask_passwords())
found = program.setup_vault_secrets(DataLoader(), C.DEFAULT_VAULT_IDENTITY_LIST,
    ask_vault_pass=options["ask_vault_pass"], auto_prompt=False)
print([(name, secret.bytes) for name, secret in found])
for file in (options["become_password_file"], options["connection_password_file"], C.DEFAULT_VAULT_PASSWORD_FILE):
    reading = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(reading, 99) == b"", "somebody could read it again"
"""


@pytest.mark.parametrize("temporary", ["plain", "a,b", "a$HOME"])
def test_the_child_reads_each_once_as_ansible_does(
    temporary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where TMPDIR has what Ansible gives a meaning of its own."""
    (tmp_path / temporary).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / temporary))
    reader = tmp_path / "reader.py"
    reader.write_text(READER)
    asking = {"ANSIBLE_ASK_VAULT_PASS": "1", "ANSIBLE_BECOME_ASK_PASS": "1", "ANSIBLE_ASK_PASS": "1"}
    elsewhere = {"ANSIBLE_VAULT_IDENTITY_LIST": "x@prompt", "ANSIBLE_VAULT_PASSWORD_FILE": "/nowhere"}
    ended = playbook.run([sys.executable, str(reader)], {**os.environ, **asking, **elsewhere}, GIVEN)
    assert ended.code == 0
    assert capfd.readouterr().out.splitlines() == [
        "('l-geheim', 's-geheim')",
        "[('dev', b'v-one'), ('prod', b'v-two'), ('default', b'v-file')]",
    ]


def test_nothing_is_left_of_what_nobody_read(tmp_path: Path) -> None:
    before, threads = set(Path("/proc/self/fd").iterdir()), threading.active_count()
    long = Passwords(sudo="x" * 100_000, ssh="y")
    with handed_over({}, long, tmp_path):
        assert len(list(tmp_path.iterdir())) == 2
        assert all(each.is_fifo() and each.stat().st_mode & 0o777 == 0o600 for each in tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert (set(Path("/proc/self/fd").iterdir()), threading.active_count()) == (before, threads)


def test_what_a_user_has_set_stays_where_nothing_was_given(tmp_path: Path) -> None:
    own = {"ANSIBLE_BECOME_PASSWORD_FILE": "/mine", "ANSIBLE_BECOME_ASK_PASS": "1"}
    with handed_over(own, Passwords(), tmp_path) as environment:
        assert environment == {**own, "ANSIBLE_ASK_VAULT_PASS": "0"}


def test_no_message_shows_them() -> None:
    assert "geheim" not in repr(GIVEN) and "v-" not in repr(GIVEN)
