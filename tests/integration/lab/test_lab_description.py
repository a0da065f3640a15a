"""The lab's pure parts: what a lab shall be, what is handed to a node, where its network lies. Needs no engine."""

import itertools

import pytest

from launcher.errors import RingmasterError
from tests.lab import files, host, network, spec
from tests.lab.access import Door, known_hosts
from tests.lab.engine import Record
from tests.lab.files import Wiring
from tests.lab.host import Host
from tests.lab.making import host_arguments
from tests.lab.recipe import recipe

WIRING = Wiring(address="10.1.2.11", gateway="10.1.2.1", subnet="10.1.2.0/24")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----"


def test_a_lab_of_equal_bare_nodes() -> None:
    described = spec.lab(nodes=2)
    assert described.nodes == (spec.NodeSpec(name="node1"), spec.NodeSpec(name="node2"))


def test_settings_of_one_node() -> None:
    described = spec.lab(nodes=2, gpus=1, overrides=["node2:mtu=1300,loopback_name=1,cores=0-1"])
    assert described.nodes[1] == spec.NodeSpec(name="node2", gpus=1, mtu=1300, loopback_name=True, cores="0-1")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("node9:mtu=1", "there is no node9"),
        ("node1:speed=1", "known settings are engine"),
        ("node1:mtu=wide", "'wide' is not a number"),
        ("node1:engine=perhaps", "say 1 or 0"),
    ],
)
def test_settings_that_make_no_sense(word: str, said: str) -> None:
    with pytest.raises(RingmasterError, match=said):
        spec.lab(nodes=1, overrides=[word])


@pytest.mark.parametrize("nodes", [0, 33])
def test_too_few_or_too_many_nodes(nodes: int) -> None:
    with pytest.raises(RingmasterError, match="1 to 32"):
        spec.lab(nodes=nodes)


def test_a_subnet_avoids_what_is_in_use() -> None:
    free = list(itertools.islice(network.candidates("ab", []), 2))
    taken = network.candidates("ab", [free[0], "0.0.0.0/0", "fd00::/64"])
    assert next(taken) == free[1]
    assert not list(network.candidates("ab", ["10.0.0.0/8"]))


def test_only_the_distributions_archives_are_handed_over() -> None:
    listed = (
        "Debian|http://mirror.example/debian/|bookworm|main|\n"
        "Debian|http://mirror.example/debian/|bookworm|contrib\n"
        "Vendor|https://vendor.example/|stable|main\n"
        "Debian|file:/srv/mirror/|bookworm|main\n"
    )
    assert host.sources(listed) == "deb http://mirror.example/debian/ bookworm main contrib\n"


def test_apts_settings_without_this_machines_paths() -> None:
    dump = (
        'Acquire::http::Proxy "http://localhost:3142";\nAcquire::https::CaInfo "/etc/ssl/own.crt";\n'
        'Acquire::http::Proxy-Auto-Detect "/usr/bin/auto";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
    )
    kept = host.options(dump)
    assert kept == 'Acquire::http::Proxy "http://localhost:3142";\nAcquire::Retries "3";\n'
    assert "http://10.1.2.1:3142" in host.via_gateway(kept, "10.1.2.1")


def test_only_the_companys_certificates_are_added() -> None:
    public, own = CERTIFICATE.format("AAAA"), CERTIFICATE.format("BBBB")
    assert host.extra_certificates(f"{public}\n{own}\n", f"{public}\n") == (own + "\n",)


def test_proxies_reach_sessions_and_services_but_not_the_labs_own_network() -> None:
    here = Host(proxies=(("https_proxy", "http://me:secret@127.0.0.1:8080"), ("no_proxy", "intra")))
    given = files.first_boot(spec.NodeSpec(name="node1"), WIRING, here, "ssh-ed25519 AAAA", "")
    session = given["/etc/environment"].content
    assert 'HTTPS_PROXY="http://me:secret@10.1.2.1:8080"\n' in session
    assert 'no_proxy="intra,localhost,10.1.2.0/24"\n' in session
    assert "DefaultEnvironment=" in given["/etc/systemd/system.conf.d/90-proxy.conf"].content


def test_a_machine_without_proxy_hands_none_over() -> None:
    given = files.first_boot(spec.NodeSpec(name="node1"), WIRING, Host(), "ssh-ed25519 AAAA", "")
    assert given["/etc/environment"].content == ""
    assert set(given) == {"/home/ops/.ssh/authorized_keys", "/etc/environment"}


def test_an_image_does_not_depend_on_what_is_handed_over() -> None:
    debian = {"distribution": "debian", "codename": "bookworm"}
    plain, behind = Host(**debian), Host(**debian, proxies=(("http_proxy", "x"),), certificates="y", apt_sources="z")
    assert recipe("bare", plain).digest == recipe("bare", behind).digest != recipe("engine", plain).digest


def test_known_hosts_of_another_port() -> None:
    doors = [Door(name="node1", address="10.1.2.11", port=2222, host_key="ssh-ed25519 AAAA")]
    assert known_hosts(doors) == "[node1]:2222,[10.1.2.11]:2222 ssh-ed25519 AAAA\n"


def test_no_node_is_privileged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    told = host_arguments(spec.NodeSpec(name="node1", memory_mb=512), tmp_path, "network")
    assert "privileged" not in told
    assert told["mem_limit"] == told["memswap_limit"] == "512m"


def test_a_record_of_nothing_takes_nothing_back() -> None:
    assert Record() == Record(packages=(), folders=(), pid=0)
