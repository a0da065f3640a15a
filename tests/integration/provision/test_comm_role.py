"""Role comm_env on the lab: interfaces, variables and names on nodes that differ."""

import json

import pytest

from lab.image.recipe import USER
from lab.lab import Lab
from tests.support.provisioned import playbook, recap

pytestmark = [pytest.mark.timeout(300)]


def test_each_node_has_its_own_interface(machines: Lab) -> None:
    """node1's is called otherwise, and node3's default route leads through another card."""
    for node in machines.nodes.values():
        lines = node.run("cat", "/etc/ringmaster/comm.env").splitlines()
        name = node.spec.interface or "eth0"
        assert f"NCCL_SOCKET_IFNAME=={name}" in lines
        assert f"GLOO_SOCKET_IFNAME={name}" in lines
        assert "NCCL_IB_DISABLE=1" in lines
        assert node.address in node.run("ip", "-4", "-o", "address", "show", name)
        assert [one for one in node.run("cat", "/etc/nccl.conf").splitlines() if one[0] != "#"] == [
            one for one in lines if one.startswith("NCCL_")
        ]


def test_every_kind_of_shell_has_the_variables(machines: Lab) -> None:
    node = machines["node2"]  # its bashrc returns early
    for way in (["-ic", "printenv GLOO_SOCKET_IFNAME"], ["-lc", "printenv GLOO_SOCKET_IFNAME"]):
        shown = node.run("runuser", "-u", USER, "--", "env", "-i", f"HOME=/home/{USER}", "bash", *way)
        assert "eth0" in shown.split(), "what bash complains about may come after it"
    through_ssh = machines["node1"].run("runuser", "-u", USER, "--", "ssh", "node2", "printenv GLOO_SOCKET_IFNAME")
    assert through_ssh.strip() == "eth0"


def test_names_mean_cluster_addresses_everywhere(machines: Lab) -> None:
    for node in machines.nodes.values():
        for other in machines.nodes.values():
            assert node.run("getent", "ahosts", other.name).split()[0] == other.address
        assert node.run("hostname", "-f").strip() == node.name
        assert node.run("getent", "ahosts", "localhost").split()[0] in ("127.0.0.1", "::1")


def test_what_the_user_adds_wins_and_nonsense_is_refused(machines: Lab) -> None:
    def check(extra: dict[str, object]) -> tuple[bool, str]:
        given = json.dumps({"ringmaster_comm_env": extra})
        done = playbook(machines, "site.yml", "--tags", "comm_env", "--check", "--diff", "-e", given)
        return all(one["failed"] == 0 for one in recap(done).values()), done.stdout + done.stderr

    fine, said = check({"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "^docker,lo", "NCCL_NOTE": "it's $HOME"})
    assert fine, said
    assert "+NCCL_SOCKET_IFNAME=^docker,lo" in said
    assert "+export NCCL_NOTE='it'\"'\"'s $HOME'" in said
    fine, said = check({"GLOO_IFACE": "eth0", "GLOO_SOCKET_IFNAME": "eth9"})
    assert not fine
    said = " ".join(said.split())
    assert "nothing reads GLOO_IFACE: did you mean GLOO_SOCKET_IFNAME?" in said
    assert "node2: " in said and "no interface here fits eth9, there is lo, " in said
    fine, said = check({"NCCL_DEBUG": "INFO\nLD_PRELOAD=/tmp/x"})
    assert not fine
    assert "ringmaster_comm_env: NCCL_DEBUG has a line break" in " ".join(said.split())
