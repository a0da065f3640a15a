"""One opening of the inventory for all verbs."""

import os
import shutil
from pathlib import Path

import pytest

from launcher.base import caller
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.commands import inventory
from launcher.commands.inventory import Inventory, inventory_path, open_cluster, open_inventory

LOCAL = str(ROOT / "inventory" / "local.yml")


def test_the_nodes_are_narrowed_by_limit(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {ansible_host: 10.0.0.1}, b: {ansible_host: 10.0.0.2}}}\n")
    opened = open_cluster(str(path), limit="b")
    assert (opened.path, [host.name for host in opened.hosts]) == (path, ["b"])
    assert opened.pins == tmp_path / "known_hosts"


def test_processes_of_this_machine_are_refused_where_machines_are_needed() -> None:
    assert len(open_inventory(LOCAL).hosts) == 4
    with pytest.raises(RingmasterError, match=r"local\.yml: node1, node2.* is this machine itself") as raised:
        open_cluster(LOCAL)
    assert raised.value.exit_code == ExitCode.USAGE


def test_the_users_own_inventory_comes_before_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "ROOT", tmp_path)
    assert inventory_path("") == tmp_path / "inventory" / "local.yml"
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").touch()
    assert inventory_path("") == tmp_path / "inventory" / "hosts.yml"
    assert inventory_path("mine.yml") == Path("mine.yml")


def test_host_keys_are_pinned_beside_the_inventory_and_in_one_that_is_a_folder(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link.yml"
    folder.mkdir()
    (folder / "hosts.yml").touch()
    link.symlink_to(folder / "hosts.yml")
    assert Inventory(path=folder, hosts=()).pins == folder / "known_hosts"
    assert Inventory(path=folder / "hosts.yml", hosts=()).pins == folder / "known_hosts"
    assert Inventory(path=link, hosts=()).pins == tmp_path / "known_hosts", "as Ansible, which follows no link here"
    assert Inventory(path=Path("hosts.yml"), hosts=()).pins == Path(os.getcwd()) / "known_hosts"  # noqa: PTH109


def test_a_relative_inventory_is_in_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "folder", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(ROOT / "inventory" / "local.yml", tmp_path / "mine.yml")
    for name in ("mine.yml", "~/mine.yml"):
        assert inventory_path(name) == tmp_path / "mine.yml"
    with pytest.raises(
        RingmasterError, match=f"no such inventory in {tmp_path} .there is {ROOT}/inventory/local.yml: "
    ):
        inventory_path("inventory/local.yml")
    assert inventory_path("").parent == ROOT / "inventory", "the default is this checkout's"
