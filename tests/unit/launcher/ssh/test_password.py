"""Jobs log in with a password where the inventory has one: asked for by ssh, and seen by nobody else."""

import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.password_pipe import PasswordPipe
from launcher.inventory.hosts import Host
from launcher.ssh import askpass
from launcher.ssh.pool import connected, open_all
from launcher.ssh.refusals import State
from tests.support.cluster.sshd import Place, Sshd

PASSWORD = "it's \\ geheim $(id)  ü"


@pytest.fixture
def machine(place: Place) -> Sshd:
    """A node on which our key is not."""
    machine = place.machine()
    place.pin(machine.port, machine.key)
    place.my_file.unlink()
    machine.password = PASSWORD
    return machine


def with_password(place: Place, machine: Sshd, password: str, more: str = "") -> Host:
    host = place.host(machine.port)
    common = f"{host.ssh.common_args} {more}"
    return replace(host, ssh=replace(host.ssh, has_password=True, password=password, common_args=common))


def everything_shown(pid: int) -> bytes:
    """What others may see of a process and of those that it started."""
    shown = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return shown + b"".join(map(everything_shown, map(int, children)))


@pytest.mark.parametrize("way", ["password", "keyboard-interactive"])
def test_the_password_lets_us_in_and_is_nowhere_to_be_seen(place: Place, machine: Sshd, way: str) -> None:
    machine.asks_by = way
    with connected([with_password(place, machine, PASSWORD)], place.pins) as remotes:
        assert remotes["node1"].run(["echo", "there"]).text == "there\n"
        assert b"geheim" not in everything_shown(remotes["node1"]._master._process.pid)
    assert machine.tried == [PASSWORD]


def test_a_key_that_is_accepted_goes_first(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    machine.password = PASSWORD
    with connected([with_password(place, machine, "unused")], place.pins) as remotes:
        assert remotes["node1"].alive
    assert machine.tried == []


def test_a_wrong_one_is_tried_once_and_refused_in_words(place: Place, machine: Sshd) -> None:
    _, failed = open_all([with_password(place, machine, "wrong")], place.pins)
    assert machine.tried == ["wrong"]
    assert failed["node1"].state is State.DENIED
    assert failed["node1"].why == (
        "neither a key nor the password was accepted for user ops; see ansible_user, and ansible_password or what was "
        "typed for ASK=ssh"
    )


def test_without_one_nothing_is_asked(place: Place, machine: Sshd) -> None:
    _, failed = open_all([place.host(machine.port)], place.pins)
    assert failed["node1"].why.startswith("no key was accepted for user ops; ")
    assert machine.tried == []


def test_one_that_stays_encrypted_is_named(place: Place, machine: Sshd) -> None:
    _, failed = open_all([with_password(place, machine, "")], place.pins)
    assert failed["node1"].why.endswith("; its ansible_password is encrypted, and no password opens it (ASK=vault)")


def test_a_node_that_takes_none_is_said_to(place: Place, machine: Sshd) -> None:
    machine.password = None
    _, failed = open_all([with_password(place, machine, PASSWORD)], place.pins)
    assert failed["node1"].why.startswith("no key was accepted for user ops; ")
    assert failed["node1"].why.endswith("; the password was not asked for (PasswordAuthentication, there or here)")
    assert machine.tried == []


def test_where_sshd_asks_in_two_ways_it_is_given_once(place: Place, machine: Sshd) -> None:
    """ssh answers the second question with nothing: it can't be told not to."""
    machine.asks_by = "keyboard-interactive,password"
    _, failed = open_all([with_password(place, machine, "wrong")], place.pins)
    assert machine.tried == ["wrong", ""]
    assert failed["node1"].why.startswith("neither a key nor the password was accepted")


def test_other_reasons_stay(place: Place, machine: Sshd) -> None:
    machine.shell = "/bin/false"
    _, failed = open_all([with_password(place, machine, PASSWORD)], place.pins)
    assert failed["node1"].why.startswith("logged in, but can't run a command: ")


def test_a_jump_host_does_not_get_it(place: Place, machine: Sshd) -> None:
    jump = place.machine()
    place.pin(jump.port, jump.key)
    jump.password = PASSWORD
    config = place.keys.with_name("config")
    config.write_text(
        f"Host *\n  User ops\n  UserKnownHostsFile {place.pins}\n  IdentityFile {place.keys}/none\n"
        f"Host gpu-1\n  HostName 127.0.0.1\n  Port {machine.port}\n  ProxyJump ops@127.0.0.1:{jump.port}\n"
    )
    host = with_password(place, machine, PASSWORD)
    ssh = replace(host.ssh, port=None, user="", key_file="", common_args=f"-F {config}")
    _, failed = open_all([replace(host, address="gpu-1", ssh=ssh)], place.pins)
    assert failed["node1"].state is State.DENIED
    assert PASSWORD not in jump.tried and jump.offered == machine.tried == []


@pytest.mark.parametrize(
    ("prompt", "answered"),
    [
        ("ops@10.0.0.1's password: ", True),
        ("(ops@10.0.0.1) Password: ", True),
        ("Enter passphrase for key '/home/me/.ssh/password': ", False),
        ("Enter PIN for ED25519-SK key /k: ", False),
        ("(ops@10.0.0.1) Verification code: ", False),
    ],
)
def test_only_the_question_for_a_password_is_answered_and_once(tmp_path: Path, prompt: str, answered: bool) -> None:
    pipe = PasswordPipe(tmp_path / "pipe", b"geheim")
    environment = {**os.environ, **askpass.environment(pipe.path)}
    asking = askpass.command(["sh", "-c", '"$SSH_ASKPASS" "$1"; "$SSH_ASKPASS" "$1"; echo end', "sh", prompt])
    done = subprocess.run(asking, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ("geheim\nend\n" if answered else "end\n")
    pipe.take_back()
    assert not list(tmp_path.iterdir())


def test_nobody_else_is_answered(tmp_path: Path) -> None:
    pipe = PasswordPipe(tmp_path / "pipe", b"geheim")
    environment = {**os.environ, **askpass.environment(pipe.path)}
    other = askpass.command(["sh", "-c", "sh -c '\"$SSH_ASKPASS\" password; echo end'; true"])
    done = subprocess.run(other, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "end\n" and not pipe.was_read
    pipe.take_back()
    assert not list(tmp_path.iterdir())


def test_one_that_somebody_else_has_removed_holds_up_nobody(tmp_path: Path) -> None:
    pipe = PasswordPipe(tmp_path / "pipe", b"geheim")
    pipe.path.unlink()
    taking = threading.Thread(target=pipe.take_back, daemon=True)
    taking.start()
    taking.join(30.0)
    assert not taking.is_alive()
