"""Which address of a node is the cluster's: provisioning and jobs ask the same function."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from launcher.on_node import addresses, probe


def shown(*infos: str, name: str = "eth0") -> dict[str, Any]:
    """Return an interface from `ip`'s words: an address, and after it its label or its flags."""
    carried = []
    for info in infos:
        address, *flags = info.split()
        local, _, length = address.partition("/")
        label = {} if ":" in local else {"label": next((one for one in flags if one.startswith(name)), name)}
        scope = "link" if local.startswith(("fe80", "169.254")) else "global"
        marks = {one: True for one in flags if not one.startswith(name)}
        carried.append({"local": local, "prefixlen": int(length or 24), "scope": scope, **label, **marks})
    return {"ifname": name, "mtu": 1500, "addr_info": carried}


def found(*infos: str, **given: str) -> dict[str, Any]:
    there = probe.interfaces(json.dumps([shown("127.0.0.1/8", name="lo"), shown(*infos)]))
    return addresses.cluster_address(there, **{"interface": "eth0", **given})


def test_the_oldest_python_of_a_node_can_read_it() -> None:
    ast.parse(Path(addresses.__file__).read_text(), feature_version=(3, 9))


@pytest.mark.parametrize(
    ("infos", "given", "address", "gloo"),
    [
        (["10.0.0.1"], {}, "10.0.0.1", "eth0"),
        # The first is not the one that leads to the others: by the interface Gloo would take the first.
        (["192.168.5.5/32", "10.0.0.1"], {"preferred": "10.0.0.1"}, "10.0.0.1", ""),
        (["192.168.5.5/32", "10.0.0.1"], {"address": "10.0.0.1"}, "10.0.0.1", ""),
        (["10.0.0.1", "10.0.0.101"], {"preferred": "10.0.0.1"}, "10.0.0.1", "eth0"),
        (["10.0.0.1", "10.0.0.101"], {"preferred": "10.9.9.9"}, "10.0.0.1", "eth0"),
        (["10.0.0.1", "10.0.0.101"], {"address": "10.0.0.1", "preferred": "10.0.0.101"}, "10.0.0.1", "eth0"),
        # An address with a label of its own is not found under the interface's name.
        (["192.168.5.5 eth0:1", "10.0.0.1"], {"preferred": "10.0.0.1"}, "10.0.0.1", "eth0"),
        (["10.0.0.1 eth0:1"], {}, "10.0.0.1", ""),
        # IPv6 alone works like IPv4; beside IPv4 it comes second, wherever `ip` shows it.
        (["fd00::1/64", "fe80::1/64"], {}, "fd00::1", "eth0"),
        (["fd00::1/64", "10.0.0.1"], {"preferred": "fd00::1"}, "fd00::1", ""),
        (["fd00::1/64"], {"address": "FD00:0::1"}, "fd00::1", "eth0"),
        # What is not valid, or not for long, is never told to others; Gloo finds it all the same.
        (["fd00::9/64 temporary", "fd00::1/64"], {"preferred": "fd00::9"}, "fd00::1", ""),
        (["169.254.3.4/16", "10.0.0.1"], {}, "10.0.0.1", ""),
    ],
)
def test_the_address_and_how_gloo_finds_it(infos: list[str], given: dict[str, str], address: str, gloo: str) -> None:
    where = found(*infos, **given)
    assert where["problem"] is None
    assert (where["address"], where["interface"], where["gloo"]) == (address, "eth0", gloo)


@pytest.mark.parametrize("flag", ["tentative", "dadfailed", "deprecated", "temporary"])
def test_an_address_that_does_not_last_is_none(flag: str) -> None:
    assert "eth0 has no address that others could use" in found(f"fd00::1/64 {flag}")["problem"]
    assert "no interface has the address fd00::1" in found(f"fd00::1/64 {flag}", address="fd00::1")["problem"]


def test_link_local_addresses_lead_to_nobody() -> None:
    assert "eth0 has no address" in found("fe80::1/64")["problem"]


def test_nccl_takes_the_first_of_its_family() -> None:
    where = found("192.168.5.5/32", "10.0.0.1", preferred="10.0.0.1")
    assert "NCCL would take 192.168.5.5, which comes first on eth0, and not 10.0.0.1" in where["nccl_problem"]
    assert "set ringmaster_cluster_ip: 192.168.5.5" in where["nccl_problem"]
    assert found("10.0.0.1", "192.168.5.5/32")["nccl_problem"] == ""
    assert found("10.0.0.1", "fd00::1/64", preferred="fd00::1")["nccl_problem"] == "", "it is told the family"
    assert "under a label" in found("10.0.0.1 eth0:1")["nccl_problem"]


def test_public_addresses_on_any_interface() -> None:
    there = [
        shown("127.0.0.1/8", name="lo"),
        shown("10.0.0.1", "100.64.0.1", "192.0.2.1", "8.8.4.4 eth0:1", "fd00::1/64", "fe80::1/64"),
        shown("2001:4860:4860::8888/64 deprecated", "2001:db8::1/64", name="eth1"),
    ]
    found = addresses.public_addresses(probe.interfaces(json.dumps(there)))
    assert found == ["8.8.4.4", "2001:4860:4860::8888"]
