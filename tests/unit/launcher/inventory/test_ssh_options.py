"""Ansible's connection variables become ssh's options, also for paths with spaces."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.commands.inventory import Inventory
from launcher.inventory import hosts as inventory
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh.known_hosts import pinning_options


def read(folder: Path, host: str, variables: str = "") -> inventory.Host:
    path = folder / "hosts.yml"
    path.write_text(f"nodes:\n  hosts:\n    a: {host}\n{variables}")
    return inventory.read(path)[0]


def test_options_have_ansibles_order(tmp_path: Path) -> None:
    host = read(
        tmp_path,
        "{ansible_port: 2222, ansible_user: ops, ansible_ssh_private_key_file: /k y}",
        "  vars: {ansible_ssh_common_args: '-F \"{{ inventory_dir }}/c\"'}\n",
    )
    assert host.ssh.options("-o X=1") == (
        *("-o", "Port=2222", "-o", 'IdentityFile="/k y"', "-o", 'User="ops"'),
        *("-F", f"{tmp_path}/c", "-o", "X=1"),
    )


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ("-M -S /run/ours", ()),
        ("-qM -S/run/ours -o X=1", ("-o", "X=1")),
        ("-Cqtt -oX=1", ("-C", "-t", "-t", "-o", "X=1")),
        ("-E /tmp/log -y -fn -v", ("-v",)),
        ("-o 'ProxyCommand ssh -q -M j' -F '-q'", ("-o", "ProxyCommand ssh -q -M j", "-F", "-q")),
        ("-? -q", ("-?", "-q")),
        ("-4 stray -q", ("-4", "stray", "-q")),
    ],
)
def test_flags_that_clash_with_ours_are_left_out(args: str, kept: tuple[str, ...]) -> None:
    assert SshOptions(args=args).options("-o B=2") == (*kept, "-o", "B=2")
    assert SshOptions(common_args=args).options("") == kept


def test_own_extra_arguments_replace_ours() -> None:
    assert SshOptions(extra_args="-o A=1").options("-o B=2") == ("-o", "A=1")


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("{ansible_port: ssh}", "a: ansible_port is 'ssh'; must be"),
        ("{ansible_port: 70000}", "a: ansible_port is '70000'"),
        ("{ansible_ssh_common_args: '-F \"x'}", "a: ansible_ssh_common_args has a quote that is not closed"),
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, host: str, message: str) -> None:
    with pytest.raises(RingmasterError, match=message):
        read(tmp_path, host)


@pytest.mark.parametrize("value", ["geheim", "'{{ theirs }}', theirs: geheim"])
def test_the_password_is_shown_by_nothing(tmp_path: Path, value: str) -> None:
    host = read(tmp_path, f"{{ansible_password: {value}}}")
    assert (host.ssh.has_password, host.ssh.password) == (True, "geheim")
    assert "geheim" not in repr(host) and "geheim" not in "".join(host.ssh.options(""))


@pytest.mark.parametrize("value", ["''", "null", "\"{{ lookup('env', 'NO_SUCH_VARIABLE') }}\""])
def test_an_empty_password_is_none(tmp_path: Path, value: str) -> None:
    host = read(tmp_path, f"{{ansible_password: {value}}}")
    assert (host.ssh.has_password, host.ssh.password) == (False, "")


def test_of_several_names_of_a_variable_the_one_counts_that_counts_for_ansible(tmp_path: Path) -> None:
    names = (
        ("ansible_user", "ansible_ssh_user"),
        ("ansible_port", "ansible_ssh_port"),
        ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
        ("ansible_private_key_file", "ansible_ssh_private_key_file"),
    )
    given = {each: str(place) for several in names for place, each in enumerate(several, start=1)}
    from ansible.playbook.play_context import PlayContext
    from ansible.plugins.loader import connection_loader

    ansible = connection_loader.get("ssh", PlayContext())
    ansible.set_options(var_options=given)
    ssh = read(tmp_path, json.dumps(given)).ssh
    for option, name in (("remote_user", "user"), ("password", "password"), ("private_key_file", "key_file")):
        assert getattr(ssh, name) == ansible.get_option(option)
    assert ssh.port == ansible.get_option("port") == 2


def test_this_machine_is_not_reached_by_ssh() -> None:
    assert not inventory.read(ROOT / "inventory" / "local.yml")[0].ssh.over_ssh


def test_group_vars_pin_host_keys_as_the_launcher_does(tmp_path: Path) -> None:
    folder = tmp_path / "my inventory"
    shutil.copytree(ROOT / "inventory" / "group_vars", folder / "group_vars")
    extra_args = read(folder, "{}").ssh.extra_args
    assert extra_args is not None
    pins = Inventory(path=folder / "hosts.yml", hosts=()).pins
    assert shlex.split(extra_args) == shlex.split(pinning_options(pins))


def test_the_example_inventory_is_valid() -> None:
    hosts = inventory.read(ROOT / "inventory" / "hosts.example.yml")
    assert [host.name for host in hosts] == ["node1", "node2"]
    assert hosts[0].settings == {}, "the defaults are the playbooks' business"
