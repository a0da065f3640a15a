"""The inventory is read through Ansible, and strictly."""

import re
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.inventory import hosts as inventory


def write(folder: Path, text: str, name: str = "hosts.yml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_embedded_default_is_this_machine_as_four_nodes() -> None:
    hosts = inventory.read(ROOT / "inventory" / "local.yml")
    assert [host.name for host in hosts] == ["node1", "node2", "node3", "node4"]
    assert {(host.address, host.runtime) for host in hosts} == {("127.0.0.1", "process")}


def test_the_examples_optional_lines_can_be_uncommented(tmp_path: Path) -> None:
    example = (ROOT / "inventory" / "hosts.example.yml").read_text()
    text, count = re.subn(r"^( +)# ((?:ansible|ringmaster)_\w+: )", r"\1\2", example, flags=re.MULTILINE)
    assert count == 13
    first, second = inventory.read(write(tmp_path, text))
    assert first.settings["data_dir"] == "/var/lib/ringmaster/data" and first.ssh.common_args == "-J bastion.example"
    assert (second.settings["gpus"], second.settings["comm_env"], second.ssh.port) == (8, {}, 22)


def test_settings_are_rendered_and_plain(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    write(tmp_path / "group_vars", "ringmaster_comm_env: {NCCL_DEBUG: INFO}\n", "nodes.yml")
    path = write(
        tmp_path, "nodes:\n  hosts:\n    a: {ansible_host: 10.0.0.1, ringmaster_cluster_ip: '{{ ansible_host }}'}\n"
    )
    (host,) = inventory.read(path)
    assert dict(host.settings) == {"cluster_ip": "10.0.0.1", "comm_env": {"NCCL_DEBUG": "INFO"}}
    assert type(host.settings["cluster_ip"]) is str
    assert host.runtime == "docker"


def test_ini_ranges_and_limit(tmp_path: Path) -> None:
    path = write(tmp_path, "[nodes]\nn[1:3] ringmaster_gpus=2\n", "hosts.ini")
    assert [host.name for host in inventory.read(path)] == ["n1", "n2", "n3"]
    assert [host.name for host in inventory.read(path, limit="n3,n1")] == ["n1", "n3"]
    assert [host.name for host in inventory.read(path, limit="nodes:!n2")] == ["n1", "n3"]
    assert [host.name for host in inventory.read(path, limit="nodes[0:1]")] == ["n1", "n2"]
    for nothing in (",", " "):
        with pytest.raises(RingmasterError, match="names no host"):
            inventory.read(path, limit=nothing)
    with pytest.raises(RingmasterError, match="LIMIT=n1:!n1 leaves no host"):
        inventory.read(path, limit="n1:!n1")
    assert inventory.read(path)[0].settings == {"gpus": 2}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("nodes: [a: b\n  c", "hosts.yml", r"hosts.yml:\d+: "),
        ("nodes:\n  hosts:\n    a:\n    a:\n", "hosts.yml", "duplicate mapping key 'a'"),
        ("nodes:\n  hosts:\n", "hosts.yml", "has no hosts"),
        ("", "hosts.yml", "no group 'nodes'"),
        ("others:\n  hosts:\n    a:\n", "hosts.yml", "no group 'nodes'"),
        ("nodes: 3\n", "hosts.yml", "Fix the inventory"),
        ("[nodes]\na\nb\na\n", "hosts.ini", "has 'a' twice"),
        (
            "nodes:\n  hosts:\n    a: {ansible_host: x}\n    b: {ansible_host: x}\n",
            "hosts.yml",
            "'a' and 'b' are both x",
        ),
        ("[nodes]\na ringmaster_gpus='{{ nope }}'\n", "hosts.ini", "nope"),
        ("nodes:\n  hosts:\n    a: {ringmaster_gpu: 1}\n", "hosts.yml", "a: .*did you mean ringmaster_gpus"),
        ("nodes:\n  hosts:\n    ../../x:\n", "hosts.yml", "can't be a node's name"),
    ],
)
def test_bad_inventories_are_one_line_errors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, name: str, message: str
) -> None:
    with pytest.raises(RingmasterError, match=message) as raised:
        inventory.read(write(tmp_path, text, name))
    assert raised.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", ""), "Ansible's own pages of warnings are folded into the one line"


def test_a_limit_that_is_not_there_and_a_missing_file(tmp_path: Path) -> None:
    path = write(tmp_path, "nodes:\n  hosts:\n    a:\n")
    with pytest.raises(RingmasterError, match=r"LIMIT names 'b'.*known: a"):
        inventory.read(path, limit="b")
    with pytest.raises(RingmasterError, match="no such inventory"):
        inventory.read(tmp_path / "none.yml")
