"""The lab's pure parts: what a lab shall be, what is handed to a node, where its network lies. Needs no engine."""

import itertools
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from docker.models.containers import Container

from lab.base import command, place
from lab.base.place import Place
from lab.commands import cli
from lab.faults import gpu_faults, links, node_faults
from lab.faults.fault import Fault
from lab.host import facts
from lab.host.facts import Host
from lab.image.recipe import recipe
from lab.nodes import files, gpus, network, spec
from lab.nodes.access import Door, known_hosts, ssh_config
from lab.nodes.files import Wiring
from lab.nodes.maker import host_arguments
from lab.nodes.node import Node
from launcher.base.errors import ExitCode, RingmasterError

WIRING = Wiring(address="10.1.2.11", gateway="10.1.2.1", subnet="10.1.2.0/24")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----"


def test_a_lab_of_equal_bare_nodes() -> None:
    described = spec.lab(nodes=2)
    assert described.nodes == (spec.NodeSpec(name="node1"), spec.NodeSpec(name="node2"))


def test_settings_of_one_node() -> None:
    described = spec.lab(nodes=2, gpus=1, overrides=["node2:mtu=1300,loopback_name=1,cores=0-1"])
    assert described.nodes[1] == spec.NodeSpec(
        name="node2", gpus=1, toolkit=True, mtu=1300, loopback_name=True, cores="0-1"
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("node9:mtu=1", "there is no node9"),
        ("node1:speed=1", "known settings are engine"),
        ("node1:mtu=wide", "'wide' is not a number"),
        ("node1:engine=perhaps", "say 1 or 0"),
        ("node1:mtu=20", "mtu=20: must be 0 or 576 to 9000"),
        ("node1:ssh_port=0", "1 to 65535"),
        ("node1:disk_gb=0", "1 to 1024"),
        ("node1:memory_mb=5", "must be 0 or 128"),
        ("node1:cores=all", "cores such as"),
        ("node1:cores=9000", "this machine has the cores"),
        ("node1:interface=$(reboot)", "a name such as"),
        ("node1:interface=docker0", "another interface's"),
        ("node1:gpus=-1", "0 to 16"),
        ("node1:driver=new", "a version"),
        ("node1:max_startups=many", "such as 10:30:100"),
        ("node1:behind=node1", "must be a node that is reached directly: there is none"),
        ("node1:behind=node2", "must be a node that is reached directly"),
    ],
)
def test_settings_that_make_no_sense(word: str, said: str) -> None:
    with pytest.raises(RingmasterError, match=said) as caught:
        spec.lab(nodes=1, overrides=[word])
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("name", ["..", ".", "", "/", "a/b", "images", "build", "Lab", "-x", "a.b", "lab\n"])
def test_a_name_that_could_remove_something_else(name: str) -> None:
    with pytest.raises(RingmasterError, match="a lab's name") as caught:
        Place(name=name)
    assert caught.value.exit_code == ExitCode.USAGE


def test_every_lab_is_found_by_folder_or_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("early", "images"):
        (tmp_path / folder).mkdir()
    (tmp_path / "engine.json").touch()
    monkeypatch.setattr(place, "STATE", tmp_path)
    labels = [f"{place.CHECKOUT}-odd", f"{place.CHECKOUT}-build", "0123456789-other"]
    assert [found.name for found in place.places(labels)] == ["early", "odd"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--name", "..", "down"], 2, "a lab's name"),
        (["up", "--engine=yes"], 2, "ENGINE=yes: must be 1 or 0"),
        (["up", "--node", "node1:mtu=1"], 2, "mtu=1"),
        (["dance"], 2, "invalid choice: 'dance'"),
    ],
)
def test_wrong_usage_ends_in_one_line_and_the_closing_one(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
    finally:
        signal.signal(signal.SIGTERM, handler)
    told = capsys.readouterr()
    assert ended.value.code == code
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == "ringmaster: exit 2 (wrong usage or inventory)\n"


def test_behind_a_jump_host_all_are_reached_through_the_last_one() -> None:
    described = spec.lab(nodes=3, jump=True, overrides=["node3:max_startups=3:50:10"])
    assert [node.behind for node in described.nodes] == ["node3", "node3", ""]
    assert described.nodes[2].max_startups == "3:50:10"
    given = [files.first_boot(node, WIRING, Host(), "ssh-ed25519 AAAA", "") for node in described.nodes]
    assert given[0]["/etc/ssh/sshd_config.d/20-behind.conf"].content == "Match Address 10.1.2.1\n    DenyUsers *\n"
    assert given[2]["/etc/ssh/sshd_config.d/10-startups.conf"].content == "MaxStartups 3:50:10\n"
    assert not any("behind" in path for path in given[2])
    doors = [
        Door(name=node.name, address="10.1.2.11", port=22, host_key="", jump=node.behind) for node in described.nodes
    ]
    assert ssh_config(Place(), doors).count("    ProxyJump node3\n") == 2
    with pytest.raises(RingmasterError, match="JUMP=1: NODES=1: must be 2 to 32"):
        spec.lab(nodes=1, jump=True)


def _node(folder: Path, name: str = "node1") -> Node:
    """A node without a container, for what is checked before one is asked."""
    described = spec.NodeSpec(name=name, gpus=2)
    gpus.write(folder, gpus.initial(described))
    return Node(name=name, spec=described, address="10.1.2.11", folder=folder, container=Container())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda node: node_faults.Partition(node, node), "two different nodes"),
        (lambda node: node_faults.FillDisk(node, left_mb=-1), "--left-mb=-1"),
        (lambda node: node_faults.LimitMemory(node, mb=1), "--mb=1"),
        (lambda node: node_faults.Pin(node, cores="x"), "--cores=x"),
        (lambda node: links.Shape(node, rate="fast"), "--rate=fast"),
        (lambda node: gpu_faults.MissingGpu(node, gpu=2), "has 2 GPUs"),
        (lambda node: gpu_faults.BusyGpu(node, mib=0), "--mib=0"),
        (lambda node: gpu_faults.OldDriver(node, version="old"), "--version=old"),
        (lambda node: gpu_faults.Xid(node, code=0), "--code=0"),
    ],
)
def test_a_fault_that_makes_no_sense(make: Callable[[Node], Fault], said: str, tmp_path: Path) -> None:
    with pytest.raises(RingmasterError, match=said) as caught:
        make(_node(tmp_path))
    assert caught.value.exit_code == ExitCode.USAGE


def test_what_is_interrupted_may_clean_up(tmp_path: Path) -> None:
    script = f"trap 'echo cleaned >{tmp_path}/said; exit' TERM; sleep 100 & wait"
    with pytest.raises(subprocess.TimeoutExpired):
        command.on_host(["sh", "-c", script], timeout=3)  # it must have set its trap by then
    assert (tmp_path / "said").read_text() == "cleaned\n"


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
    assert facts.sources(listed) == "deb http://mirror.example/debian/ bookworm main contrib\n"


def test_apts_settings_without_this_machines_paths() -> None:
    dump = (
        'Acquire::http::Proxy "http://localhost:3142";\nAcquire::https::CaInfo "/etc/ssl/own.crt";\n'
        'Acquire::http::Proxy-Auto-Detect "/usr/bin/auto";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
    )
    kept = facts.options(dump)
    assert kept == 'Acquire::http::Proxy "http://localhost:3142";\nAcquire::Retries "3";\n'
    assert "http://10.1.2.1:3142" in facts.via_gateway(kept, "10.1.2.1")


def test_only_the_companys_certificates_are_added() -> None:
    public, own = CERTIFICATE.format("AAAA"), CERTIFICATE.format("BBBB")
    assert facts.extra_certificates(f"{public}\n{own}\n", f"{public}\n") == (own + "\n",)


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


def test_no_node_is_privileged(tmp_path: Path) -> None:
    told = host_arguments(spec.NodeSpec(name="node1", memory_mb=512), tmp_path, "network")
    assert "privileged" not in told
    assert told["mem_limit"] == told["memswap_limit"] == "512m"
