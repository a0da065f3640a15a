"""Nodes that want passwords: from a file that Ansible Vault encrypts, or asked for once on a terminal, seen nowhere."""

import fcntl
import os
import shlex
import subprocess
import termios
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.lab import Lab
from lab.nodes.node import Node
from launcher.base.paths import ROOT
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh.pool import connected, open_all
from tests.support.terminal import opened

PASSWORD = "Zug-um-Zug-17"
USER = "ops"
SUDOERS = f"/etc/sudoers.d/90-{USER}"

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def guarded(bare_lab: Lab) -> Iterator[Node]:
    """Node 2, whose operator has a password that sudo wants each time; afterwards it is as it was."""
    node = bare_lab["node2"]
    node.run("cp", "-p", "/etc/shadow", "/etc/shadow.before")
    node.run("cp", "-p", SUDOERS, "/etc/90-before")
    try:
        node.run("sh", "-c", f"echo '{USER}:{PASSWORD}' | chpasswd")
        node.run("sh", "-c", f"sed -i s/NOPASSWD:// {SUDOERS}; echo 'Defaults timestamp_timeout=0' >>{SUDOERS}")
        yield node
    finally:
        node.run("mv", "/etc/shadow.before", "/etc/shadow")
        node.run("mv", "/etc/90-before", SUDOERS)
        node.run("rm", "-rf", f"/var/lib/sudo/lectured/{USER}")


def inventory(machines: Lab, folder: Path, variables: str) -> Path:
    """Return a copy of the lab's inventory, with variables of all nodes in a file that is encrypted as a whole."""
    from ansible.parsing.vault import VaultLib, VaultSecret  # torch._dynamo can't be imported after Ansible

    for path in (machines.place.inventory, machines.place.ssh_config, machines.place.known_hosts):
        (folder / path.name).write_text(path.read_text())
    vault = folder / "group_vars" / "nodes" / "vault.yml"
    vault.parent.mkdir(parents=True)
    vault.write_bytes(VaultLib().encrypt(variables, secret=VaultSecret(b"of the vault"), vault_id="prod"))
    return folder / machines.place.inventory.name


def looked_at(path: Path, vault: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Provision node 2 with the one role that only looks, but needs root."""
    own = {"COLUMNS": "200"} | ({"ANSIBLE_VAULT_IDENTITY_LIST": f"prod@{vault}"} if vault else {})
    return subprocess.run(
        [ROOT / ".venv/bin/fab", "provision", f"--inventory={path}", "--tags=preflight", "--limit=node2"],
        cwd=ROOT, text=True, timeout=120, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **own},
    )  # fmt: skip


def test_without_a_password_the_table_says_both_ways(bare_lab: Lab, guarded: Node) -> None:
    done = looked_at(bare_lab.place.inventory)
    assert done.returncode == 5, done.stdout
    row = next(line for line in reversed(done.stdout.splitlines()) if line.strip().startswith(guarded.name))
    assert "sudo wants a password" in row and "ASK=sudo" in row and "ansible_become_password" in row


def test_passwords_that_vault_encrypts(bare_lab: Lab, guarded: Node, tmp_path: Path) -> None:
    """Ssh's and sudo's; no key is accepted."""
    path = inventory(bare_lab, tmp_path, f"ansible_password: {PASSWORD}\nansible_become_password: {PASSWORD}\n")
    config = tmp_path / bare_lab.place.ssh_config.name
    config.write_text(config.read_text().replace(str(bare_lab.place.key), str(tmp_path / "no_key")))
    refused = looked_at(path)
    assert refused.returncode == 2, refused.stdout
    assert f"{tmp_path / 'group_vars' / 'nodes' / 'vault.yml'}: encrypted with Ansible Vault" in refused.stdout
    (tmp_path / "password").write_text("of the vault\n")
    done = looked_at(path, tmp_path / "password")
    assert done.returncode == 0, done.stdout
    assert PASSWORD not in refused.stdout + done.stdout


def test_a_job_logs_in_with_one_where_no_key_is_accepted(bare_lab: Lab, guarded: Node, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(bare_lab.place.ssh_config.read_text().replace(str(bare_lab.place.key), str(tmp_path / "no_key")))
    way = SshOptions(common_args=shlex.join(("-F", str(config))), has_password=True, password=PASSWORD)
    with connected([Host(name=guarded.name, address=guarded.name, ssh=way)], bare_lab.place.known_hosts) as remotes:
        assert remotes[guarded.name].run(["id", "-un"]).text == f"{USER}\n"
    wrong = replace(way, password=f"{PASSWORD}?")
    _, failed = open_all([Host(name=guarded.name, address=guarded.name, ssh=wrong)], bare_lab.place.known_hosts)
    assert failed[guarded.name].why.startswith(f"neither a key nor the password was accepted for user {USER}; ")


class Watch:
    """Looks into all processes of this machine, as `ps` does, for a word."""

    def __init__(self, word: str) -> None:
        self.found: list[str] = []
        self.playbooks: set[str] = set()
        self._word = word.encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        content = (process / name).read_bytes()
                    except OSError:  # it has ended
                        continue
                    if self._word in content:
                        self.found.append(f"{process.name} {name}: {content!r}")
                    if name == "cmdline" and b"ansible-playbook" in content:
                        self.playbooks.add(process.name)


def test_a_sudo_password_is_asked_for_once_and_seen_by_nobody(bare_lab: Lab, guarded: Node) -> None:
    words = ("make", "provision", "ASK=sudo", f"INVENTORY={bare_lab.place.inventory}", "TAGS=preflight", "LIMIT=node2")
    with opened("terminal") as terminal, Watch(PASSWORD) as watch:
        terminal.read_on()
        process = subprocess.Popen(
            words, cwd=ROOT, stdin=terminal.inside, stdout=terminal.inside, stderr=terminal.inside,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        terminal.await_words(b"sudo password on the nodes: ", seconds=60)
        os.write(terminal.outside, f"{PASSWORD}\n".encode())
        code = process.wait(timeout=120)
        shown = terminal.text.decode()
    assert code == 0, shown
    assert shown.count("password") == 1 and PASSWORD not in shown
    assert watch.playbooks, "the watch saw the playbook run"
    assert watch.found == []
