"""Ansible's own classes read inventories: they agree with its published reader, and leave no trace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.inventory import hosts as inventory

ORACLES = {
    "hosts.yml": """
nodes:
  children:
    rack_b:
      hosts:
        b2: {ansible_host: 10.0.0.2, ringmaster_gpus: 2}
        b1: {ansible_host: 10.0.0.1, ringmaster_comm_env: {NCCL_DEBUG: INFO}}
    rack_a:
      hosts:
        a1: {ringmaster_backend: gloo}
      vars:
        ringmaster_interface: ib0
  vars:
    ansible_user: ubuntu
    ringmaster_interface: eth1
""",
    "hosts.ini": """
[rack_b]
b2 ansible_port=2222 ringmaster_gpus=2
[rack_a]
a1
[nodes:children]
rack_b
rack_a
[nodes:vars]
ringmaster_interface=eth1
""",
}


@pytest.mark.parametrize("name", ORACLES)
def test_ansible_inventory_says_the_same(tmp_path: Path, name: str) -> None:
    """Compare the classes that Ansible calls internal with its published reader, for the day that they change."""
    path = tmp_path / name
    path.write_text(ORACLES[name])
    program = Path(sys.executable).with_name("ansible-inventory")
    done = subprocess.run([program, "-i", path, "--list"], check=True, capture_output=True, text=True, timeout=60)
    listed = json.loads(done.stdout)
    names = [host for group in listed["nodes"]["children"] for host in listed[group]["hosts"]]
    variables = listed["_meta"]["hostvars"]
    hosts = inventory.read(path)
    assert [host.name for host in hosts] == names
    for host in hosts:
        ours = {f"ringmaster_{key}": value for key, value in host.settings.items()}
        assert ours == {key: value for key, value in variables[host.name].items() if key.startswith("ringmaster_")}
        assert host.address == variables[host.name].get("ansible_host", host.name)
        assert host.ssh.user == variables[host.name].get("ansible_user", "")
        assert host.ssh.port == variables[host.name].get("ansible_port")


def test_ansibles_settings_do_not_reach_the_users_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_LOCALHOST_WARNING", "mine")
    before = dict(os.environ)
    (tmp_path / "hosts.yml").write_text("nodes:\n  hosts:\n    a:\n")
    inventory.read(tmp_path / "hosts.yml")
    assert dict(os.environ) == before
