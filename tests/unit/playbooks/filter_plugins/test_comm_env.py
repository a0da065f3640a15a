"""Addresses, names and variables that each node gets."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import comm_env
import pytest


def fact(number: int, hostname: str = "", names: list[str] | None = None, **network: Any) -> dict[str, Any]:
    name = hostname or f"n{number}"
    return {
        "hostname": name,
        "user": {"name": "ops", "home": "/home/ops", "shell": "/bin/bash"},
        "network": {
            "names": names or [name],
            "cluster": {"interface": "eth0", "address": f"10.0.0.{number}", "problem": None, "gloo": "eth0"},
            "interfaces": [{"name": "eth0", "addresses": [f"10.0.0.{number}"]}],
            "infiniband": False,
            "resolves_to": [f"10.0.0.{number}"],
            "loopback_lines": [],
            "masked_lines": [],
            **network,
        },
    }


def test_where_a_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"gpu2": ["127.0.1.1", "10.0.0.2"], "gpu3": ["127.0.1.1"]}

    def getaddrinfo(name: str, *_: Any, **__: Any) -> list[Any]:
        if name not in known:
            raise OSError
        return [(socket.AF_INET, 0, 0, "", (one, 0)) for one in known[name]]

    monkeypatch.setattr(comm_env.socket, "getaddrinfo", getaddrinfo)
    comm_env._resolved.cache_clear()
    hostvars = {
        "n1": {"ansible_host": "192.0.2.1", "ringmaster_cluster_ip": "10.0.0.1"},
        "n2": {"ansible_host": "gpu2"},
        "n3": {"ansible_host": "gpu3"},  # this machine itself: its loopback is nobody's way to it
        "alias": {},
        "n6": {"ansible_host": "[fd00::6]"},
    }
    assert comm_env.peer_addresses(hostvars, hostvars) == {
        "n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "gpu3", "alias": "alias", "n6": "fd00::6",
    }  # fmt: skip
    comm_env._resolved.cache_clear()


def test_the_dictionary() -> None:
    network = fact(1)["network"]
    assert comm_env.comm_variables(network, {}) == {
        "NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1",
        "RINGMASTER_CLUSTER_IP": "10.0.0.1",
    }  # fmt: skip
    more = comm_env.comm_variables(network, {"NCCL_NSOCKS_PERTHREAD": 4, "NCCL_SOCKET_IFNAME": "=eth9"}, "INFO", "use")
    assert more == {
        "NCCL_SOCKET_IFNAME": "=eth9", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "NCCL_NSOCKS_PERTHREAD": "4",
        "RINGMASTER_CLUSTER_IP": "10.0.0.1",
    }  # fmt: skip


def test_an_address_that_is_not_the_interfaces_first_is_found_by_the_host_name() -> None:
    cluster = {"interface": "eth0", "address": "10.0.0.7", "problem": None, "gloo": ""}
    variables = comm_env.comm_variables(fact(1, cluster=cluster)["network"], {"RINGMASTER_CLUSTER_IP": "10.9.9.9"})
    assert "GLOO_SOCKET_IFNAME" not in variables, "Gloo would take the first"
    assert variables["RINGMASTER_CLUSTER_IP"] == "10.0.0.7", "jobs take it from there"


def test_nccl_is_told_to_use_ipv6() -> None:
    cluster = {"interface": "eth0", "address": "fd00::1", "problem": None, "gloo": "eth0"}
    assert comm_env.comm_variables(fact(1, cluster=cluster)["network"], {})["NCCL_SOCKET_FAMILY"] == "AF_INET6"


@pytest.mark.parametrize(
    ("wanted", "there", "disabled"),
    [("auto", True, False), ("auto", False, True), ("use", False, False), ("avoid", True, True)],
)
def test_infiniband(wanted: str, there: bool, disabled: bool) -> None:
    variables = comm_env.comm_variables(fact(1, infiniband=there)["network"], {}, "", wanted)
    assert ("NCCL_IB_DISABLE" in variables) == disabled


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"NCCL_X": "a\nb"}, "line break"),
        ({"NCCL_X": "a\x7f"}, "control character"),
        ({"NCCL X": "1"}, "can't name a variable"),
        ({"1X": "1"}, "can't name a variable"),
        ({"NCCL_X": True}, "write 1 or 0"),
        ({"NCCL_X": None}, "neither text nor"),
        ({"NCCL_X": ["a"]}, "neither text nor"),
        (["NCCL_X=1"], "not a mapping"),
    ],
)
def test_what_cannot_be_written_is_refused(extra: Any, says: str) -> None:
    assert any(says in one for one in comm_env.comm_problems(extra))
    with pytest.raises(ValueError, match="ringmaster_comm_env"):
        comm_env.comm_variables(fact(1)["network"], extra)


def test_an_unknown_interface_is_an_error() -> None:
    network = fact(1, cluster={"interface": None, "address": None, "problem": "set ringmaster_interface"})["network"]
    with pytest.raises(ValueError, match="set ringmaster_interface"):
        comm_env.comm_variables(network, {})


def texts(variables: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {
        one["path"].rpartition("/")[2]: one for one in comm_env.comm_files({"n1": fact(1)}, ["n1"], "n1", variables)
    }


def test_bash_reads_every_byte_and_executes_nothing(tmp_path: Path) -> None:
    values = {"NCCL_A": "=eth0", "B": 'it\'s "$(touch x)" `id` \\ $HOME ; # ü', "C": " two  spaces ", "D": ""}
    script = tmp_path / "bashrc"
    script.write_text(texts(values)[".bashrc"]["text"] + "env -0\n")
    done = subprocess.run(["bash", script], cwd=tmp_path, capture_output=True, check=True)
    seen = dict(one.split("=", 1) for one in done.stdout.decode().split("\0") if one)
    assert {name: seen[name] for name in values} == values
    assert not (tmp_path / "x").exists()


def test_the_other_forms() -> None:
    found = texts({"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_X": "a b"})
    assert found["comm.env"]["text"] == "NCCL_SOCKET_IFNAME==eth0\nGLOO_SOCKET_IFNAME=eth0\nNCCL_X=a b\n"
    assert found["nccl.conf"]["text"] == "NCCL_SOCKET_IFNAME==eth0\nNCCL_X=a b\n"
    assert all(found[name]["top"] for name in (".bashrc", "nccl.conf", "hosts"))
    assert found[".bashrc"]["owner"] == "ops"


def test_hosts_lines_keep_the_canonical_name() -> None:
    facts = {"a": fact(1, "n1", ["n1.example.org", "n1", "store"]), "b": fact(2, "n2", ["n2.lan", "n2"])}
    assert comm_env.host_lines(facts, ["b", "a", "down", "10.0.0.7"], "a") == {
        "a": "10.0.0.1 n1.example.org n1 store a\n",
        "b": "10.0.0.2 n2.lan n2 b\n",
        "down": None,
        "10.0.0.7": None,
    }
    assert next(iter(comm_env.host_lines(facts, ["b", "a"], "a"))) == "a"


def test_names_that_two_nodes_have_mean_neither() -> None:
    facts = {"a": fact(1, "ubuntu"), "b": fact(2, "ubuntu"), "c": fact(3, "a"), "10.0.0.4": fact(4, "localhost")}
    assert comm_env.node_names(facts) == {"a": ["a"], "b": ["b"], "c": ["c"], "10.0.0.4": []}
    lines = comm_env.host_lines(facts, facts, "b")
    assert lines["b"] == "10.0.0.2 ubuntu b\n"
    assert lines["a"] == "10.0.0.1 a\n"
    assert lines["10.0.0.4"] == ""


def test_patterns_of_ssh_are_no_names() -> None:
    facts = {"n1": fact(1, "n*", ["!x,y"]), "n2": fact(2)}
    assert comm_env.node_names(facts)["n1"] == ["n1"]


def test_localhost_stays_when_its_line_is_masked() -> None:
    before = fact(1, names=["n1.lan", "n1"], loopback_lines=["127.0.0.1 localhost n1.lan n1", "127.0.1.1 n1"])
    after = fact(1, names=["n1.lan", "n1"], masked_lines=["127.0.0.1 localhost n1.lan n1", "127.0.1.1 n1"])
    for one in (before, after):
        assert comm_env.host_lines({"n1": one}, ["n1"], "n1")["n1"] == "10.0.0.1 n1.lan n1\n127.0.0.1 localhost\n"


def test_findings() -> None:
    variables = {"A": "1", "B": "=eth0"}
    shown = [f"{shell}: {name}={value}" for shell in comm_env._SHELLS for name, value in variables.items()]
    assert comm_env.comm_findings(shown, variables, fact(1)) == []
    assert [one.partition(" although")[0] for one in comm_env.comm_findings(shown[1:], variables, fact(1))] == [
        "ssh lacks A"
    ]
    assert "bash -lc lacks B" in comm_env.comm_findings(shown[:-1], variables, fact(1))[0]
    # A start file of the user's that doesn't read the bashrc is no failure.
    assert comm_env.comm_findings(shown[:-2], variables, fact(1)) == []
    fish = fact(1)
    fish["user"]["shell"] = "/usr/bin/fish"
    assert comm_env.comm_findings(shown[2:], variables, fish) == []
    elsewhere = fact(1, resolves_to=["127.0.1.1", "10.0.0.1"], interfaces=[])
    assert [one.partition(": ")[0] for one in comm_env.comm_findings(shown, variables, elsewhere)] == [
        "the interface eth0 does not have the address 10.0.0.1 but none",
        "the node's own name means 127.0.1.1, 10.0.0.1 and not 10.0.0.1, although /etc/hosts says so",
    ]
