"""A node's answer is read, and tells how the others reach it."""

import json
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.preflight.node_facts import Interface, cluster, parse, question, shared_network
from launcher.on_node import probe
from tests.support.probe_answers import FOLDERS, TOLD, host, look


def test_an_answer() -> None:
    found = look(time=1007.5, gpu_processes=[{"gpu": "GPU-b", "pid": 7, "name": "x", "memory_mib": None}])
    assert (found.clock_s, found.architecture, found.job_dir.free) == (7.5, "amd64", 10**12)
    assert str(found.gpu_processes[0]) == "x (pid 7)"


def test_what_could_not_be_looked_at_is_empty() -> None:
    nothing = {name: None for name in TOLD if name not in {"uid", "gid", "time", "troubles"}}
    found = look(**nothing, troubles={"gpus": "it fails", "gpu_processes": "it fails", "interfaces": "no ip"})
    assert (found.gpu_problem, found.gpus, found.cores, found.listening) == ("it fails", (), 1, frozenset())
    assert found.troubles == {"interfaces": "no ip"}
    assert not found.job_dir.there


@pytest.mark.parametrize(
    "changed",
    [
        {"uid": "root"},
        {"cores": "many"},
        {"memory": ["much"]},
        {"memlock": {}},
        {"comm_env": ["NCCL_DEBUG"]},
        {"listening": ["http"]},
        {"listening": 20000},
        {"devices": [7]},
        {"interfaces": [{"name": "eth0"}]},
        {"interfaces": [{"name": "eth0", "mtu": 1500, "addresses": ["everywhere"]}]},
        {"gpus": [{"later": 1}]},
        {"architecture": ["x86_64"]},
        {"time": None},
        {"troubles": None},
    ],
)
def test_an_answer_of_other_types_is_none(changed: dict[str, Any]) -> None:
    with pytest.raises(RingmasterError, match=r"^node1: can't be looked at") as raised:
        look(**changed)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


@pytest.mark.parametrize("which", ["job_dir", "data_dir"])
def test_a_node_that_looked_at_other_folders_is_not_believed(which: str) -> None:
    told = json.dumps({**TOLD, which: {**TOLD[which], "path": "/mine"}})
    with pytest.raises(RingmasterError, match="other folders"):
        parse(host(**FOLDERS), told, heard_at=1000.0)
    assert parse(host(**{**FOLDERS, which: "/mine"}), told, heard_at=1000.0).uid == 1000, "where the inventory says so"


def test_what_a_node_tells_is_fit_to_be_shown_and_used() -> None:
    found = look(
        user="ops\x1b[2J",
        host_name="gpu\r\n1",
        devices=["/dev/infiniband/uverbs0", "/dev/gdrdrv", "/dev/sda", "/dev/infiniband/../mem", "/dev/infiniband/a:b"],
        comm_env={"NCCL_NSOCKS_PERTHREAD": 4},
    )
    assert (found.user, found.host_name) == ("ops[2J", "gpu1")
    assert found.devices == ("/dev/infiniband/uverbs0", "/dev/gdrdrv")
    assert found.comm_env == {"NCCL_NSOCKS_PERTHREAD": "4"}


@pytest.mark.parametrize("answer", ["", "Welcome!\n{}", "[]", "{}", "null", '"yes"', "7"])
def test_no_answer_is_an_error_that_names_the_node(answer: str) -> None:
    with pytest.raises(RingmasterError, match=r"node1: can't be looked at \(sh: python3: not found\)") as raised:
        parse(host(), answer, heard_at=0, why="sh: python3: not found")
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_the_question_names_the_inventorys_folders() -> None:
    program, _, _, source, folders = question(host(job_dir="/fast/jobs"))
    assert (program, json.loads(folders)["job_dir"]) == ("python3", "/fast/jobs")
    assert json.loads(folders)["data_dir"] == "/var/lib/ringmaster/data"
    assert source == Path(probe.__file__).read_text()


@pytest.mark.parametrize(
    ("settings", "comm_env", "interface", "address"),
    [
        ({}, "eth1", "eth1", "10.0.0.1"),
        ({}, "eth1,eth0", "eth1", "10.0.0.1"),
        ({"interface": "eth0"}, "eth1", "eth0", "192.0.2.1"),
        ({"cluster_ip": "10.0.0.101"}, "eth0", "eth1", "10.0.0.101"),
        ({"interface": "eth1", "cluster_ip": "10.0.0.101"}, "eth0", "eth1", "10.0.0.101"),
    ],
)
def test_the_inventory_wins_over_what_provisioning_found(
    settings: dict[str, str], comm_env: str, interface: str, address: str
) -> None:
    found = cluster(host(**settings), look(comm_env={"GLOO_SOCKET_IFNAME": comm_env}))
    assert (found.interface, str(found.address.ip)) == (interface, address)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interface": "ib0"}, r"no interface 'ib0' .*there is lo, eth0, eth1.*mend ringmaster_interface"),
        ({"cluster_ip": "10.9.9.9"}, r"no interface has the address 10\.9\.9\.9 .*mend ringmaster_cluster_ip"),
        ({"interface": "eth0", "cluster_ip": "10.0.0.1"}, r"has the address 10\.0\.0\.1 \(there is eth0 192\.0\.2\.1"),
    ],
)
def test_what_the_node_has_not(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster(host(**settings), look())


def test_a_file_without_the_interface() -> None:
    with pytest.raises(ValueError, match="TAGS=comm_env"):
        cluster(host(), look(comm_env={}))


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [
        ("10.0.0.1/24", "10.0.0.2/24", ("a", "b")),
        ("172.17.0.1/16", "172.17.0.1/16", None),  # an engine's bridge has the same address everywhere
        ("10.0.0.1/24", "10.0.1.2/24", None),
        ("127.0.0.1/8", "127.0.0.2/8", None),
    ],
)
def test_shared_networks(mine: str, theirs: str, shared: tuple[str, str] | None) -> None:
    one, other = (
        replace(look(), interfaces=(Interface(name=name, mtu=1500, addresses=(IPv4Interface(address),)),))
        for name, address in (("a", mine), ("b", theirs))
    )
    assert shared_network(one, other) == shared
