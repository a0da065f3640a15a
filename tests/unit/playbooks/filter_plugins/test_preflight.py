"""The preflight's checks: each with a node that fails it, and only it."""

import itertools
import os
from pathlib import Path
from typing import Any

import preflight
import pytest
import ringmaster_preflight
from ansible.module_utils.ringmaster.system import gpus, look
from preflight import preflight_report

from launcher.base.paths import ROOT

_machines = itertools.count()
LIMITS = {"disk_gb": 12, "memory_mb": 1024, "clock_s": 5, "driver": "", "cuda": ""}
GPU = {"index": "0", "model": "NVIDIA H100", "memory_mib": 81559, "driver": "580.95.05"}


def fact(**changes: Any) -> dict[str, Any]:
    cluster = {"interface": "eth0", "address": "10.0.0.1", "mtu": 1500, "problem": None, "nccl_problem": ""}
    return {
        "user": {"name": "ops", "root": True},
        "os": {"id": "debian", "like": "", "version": "12", "codename": "bookworm", "name": "Debian 12"},
        "arch": "x86_64",
        "systemd": True,
        "python": "3.11.2",
        "cores": 8,
        "memory_mb": 64000,
        "disk_free_gb": 100,
        "clock_offset_s": 0.4,
        "reboot_pending": False,
        "gpus": [],
        "gpu_processes": [],
        "gpu_problem": None,
        "unclaimed": 0,
        "nouveau": False,
        "jobs": [],
        "machine": str(next(_machines)),
        "engine": {"present": False},
        "apt_locked_by": None,
        "firewall": {"other": None, "filters": ""},
        "network": {
            "cluster": cluster,
            "public": [],
            "routes": {"b": {"interface": "eth0", "source": "10.0.0.1"}},
            "interfaces": [{"name": "eth0", "addresses": ["10.0.0.1"]}, {"name": "eth1", "addresses": []}],
        },
        **changes,
    }


@pytest.mark.parametrize(
    ("mode", "filters", "warned"),
    [
        (None, "", True),
        ("disabled", "", True),
        ("disabled", "ufw", True),  # it is going to be switched off
        ("disabled", "firewalld", False),
        ("keep", "", True),  # kept as it is: off
        ("keep", "ufw", False),
        ("cluster_only", "", False),  # it is going to be switched on
    ],
)
def test_a_public_address_without_a_firewall(mode: str | None, filters: str, warned: bool) -> None:
    network = {**fact()["network"], "public": ["8.8.8.8"]}
    firewall = {"other": None if filters in ("", "ufw") else filters, "filters": filters}
    settings = {} if mode is None else {"firewall": mode}
    opened = [one for one in findings(settings, network=network, firewall=firewall) if one["check"] == "open"]
    assert bool(opened) == warned
    for one in opened:
        assert not one["required"]
        assert (
            f"reaches 8.8.8.8, and no firewall runs there (ringmaster_firewall: {mode or 'disabled'})" in one["message"]
        )


SECOND = {"interface": "eth0", "address": "10.0.0.1", "mtu": 1500, "problem": None, "nccl_problem": "another first"}


@pytest.mark.parametrize(
    ("settings", "gpus", "refused"),
    [
        ({}, [GPU], True),
        ({"backend": "nccl"}, [GPU], True),
        ({"backend": "gloo"}, [GPU], False),
        ({"comm_env": {"NCCL_SOCKET_IFNAME": "=eth0"}}, [GPU], False),
        ({}, [], False),
    ],
)
def test_nccl_needs_the_first_address(settings: dict[str, Any], gpus: list[Any], refused: bool) -> None:
    found = findings(settings, gpus=gpus, network={**fact()["network"], "cluster": SECOND})
    assert [(one["check"], one["required"]) for one in found] == ([("nccl", True)] if refused else [])


def ubuntu(version: str) -> dict[str, str]:
    return {"id": "ubuntu", "like": "debian", "version": version, "codename": "x", "name": f"Ubuntu {version}"}


def findings(settings: dict[str, Any] | None = None, **changes: Any) -> list[dict[str, Any]]:
    report = preflight_report({"node1": fact(**changes)}, {"node1": settings or {}}, LIMITS)
    return report["findings"]  # type: ignore[no-any-return]


def test_a_good_node_has_none() -> None:
    assert findings() == []
    assert findings({"gpus": 1}, gpus=[GPU]) == []


@pytest.mark.parametrize(
    ("check", "required", "changes"),
    [
        ("sudo", True, {"user": {"name": "ops", "root": False}}),
        ("system", True, {"systemd": False}),
        ("system", True, {"os": {"id": "debian", "like": "", "version": "10", "codename": "x", "name": "Debian 10"}}),
        ("system", True, {"os": ubuntu("20.04")}),
        ("architecture", True, {"arch": "ppc64le"}),
        ("system", True, {"os": {"id": "fedora", "like": "", "version": "41", "codename": "", "name": "Fedora 41"}}),
        ("relative", False, {"os": {"id": "mint", "like": "ubuntu", "version": "22", "codename": "", "name": "Mint"}}),
        ("python", True, {"python": "3.8.10"}),
        ("disk", True, {"disk_free_gb": 3}),
        ("room", False, {"disk_free_gb": 3, "engine": {"present": True}}),
        ("memory", True, {"memory_mb": 512}),
        ("clock", False, {"clock_offset_s": -30.0}),
        ("old_driver", False, {"gpus": [GPU | {"driver": "535.183.01"}]}),
        ("driver", True, {"gpus": [GPU | {"driver": "470.82.01"}, GPU]}),
        ("gpu_driver", True, {"gpu_problem": "couldn't communicate with the driver"}),
        ("gpu_driver", True, {"unclaimed": 8}),
        ("nouveau", True, {"nouveau": True}),
        ("gpu_processes", True, {"gpus": [GPU], "gpu_processes": [{"pid": 7, "name": "python", "memory_mib": 900}]}),
        ("job", False, {"jobs": ["night"]}),
        ("reboot", False, {"reboot_pending": True}),
        ("apt", False, {"apt_locked_by": "unattended-upgr (pid 7)"}),
        ("firewall", False, {"firewall": {"other": "firewalld", "filters": "firewalld"}}),
    ],
)
def test_each_check(check: str, required: bool, changes: dict[str, Any]) -> None:
    found = findings(**changes)
    assert [(one["check"], one["required"], one["node"]) for one in found] == [(check, required, "node1")]


@pytest.mark.parametrize(
    ("limits", "driver", "says"),
    [
        ({"cuda": "13.2"}, "580.65.06", ""),
        ({"cuda": "13.2"}, "535.183.01", "too old for CUDA 13.2, which needs 580 or newer: `make image CUDA=12`, or"),
        ({"cuda": "12.8"}, "535.183.01", ""),
        ({"cuda": "12.8"}, "470.82.01", "too old for CUDA 12.8, which needs 525 or newer: install a newer driver"),
        ({"driver": "550"}, "535.183.01", "its driver is 535.183.01, 550 or newer is wanted (preflight_driver)"),
        ({"driver": "525", "cuda": "13.2"}, "535.183.01", ""),
    ],
)
def test_a_driver_is_compared_with_the_cuda_of_the_recorded_image(
    limits: dict[str, str], driver: str, says: str
) -> None:
    report = preflight_report({"node1": fact(gpus=[GPU | {"driver": driver}])}, {}, LIMITS | limits)
    assert [(one["check"], one["required"], says in one["message"]) for one in report["findings"]] == (
        [("driver", True, True)] if says else []
    )


def test_without_an_image_an_old_driver_is_told_which_one_it_can_have() -> None:
    (only,) = findings(gpus=[GPU | {"driver": "535.183.01"}])
    assert "535.183.01 is too old for CUDA 13, which needs 580 or newer: `make image CUDA=12`, or" in only["message"]


@pytest.mark.parametrize(
    "taken",
    [
        {"os": ubuntu("22.04")},
        {"os": ubuntu("24.04")},
        {"os": {"id": "debian", "like": "", "version": "", "codename": "forky", "name": "Debian forky/sid"}},
        {"arch": "aarch64"},
    ],
)
def test_what_else_is_taken(taken: dict[str, Any]) -> None:
    assert findings(**taken) == []


def test_a_system_that_is_too_old_is_told_which_are_not() -> None:
    message = findings(os=ubuntu("20.04"))[0]["message"]
    assert message == "Ubuntu 20.04 isn't taken: Debian 11, Ubuntu 22.04 and newer are (README, Your machines)"


def test_the_readme_says_what_the_rule_takes() -> None:
    readme = (ROOT / "README.md").read_text()
    table = readme[readme.index("| taken as nodes |") :].split("\n\n")[0].splitlines()
    assert [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table[2:]] == preflight.taken()


def test_a_promised_gpu_that_is_missing() -> None:
    assert [one["check"] for one in findings({"gpus": 2}, gpus=[GPU])] == ["gpus"]


def test_a_promise_that_is_no_number() -> None:
    assert "whole number" in findings({"gpus": "two"})[0]["message"]


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"GLOO_IFACE": "eth0"}, "nothing reads GLOO_IFACE: did you mean GLOO_SOCKET_IFNAME?"),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, "GLOO_SOCKET_IFNAME=eth1 (from ringmaster_comm_env): no interface here fits"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "there is eth0: name one of these, or leave it out"),
    ],
)
def test_variables_that_nobody_reads_or_that_name_no_interface(variables: dict[str, str], says: str) -> None:
    (only,) = findings({"comm_env": variables})
    assert (only["check"], only["required"], says in only["message"]) == ("comm_env", True, True)
    assert findings({"comm_env": {"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_NEW": 1}}) == []


def test_a_refusal_names_the_nodes_it_is_for() -> None:
    refusals = [
        {"node": "node2", "message": "too small"},
        {"node": "node3", "message": "too old"},
        {"node": "node2", "message": "too slow"},
    ]
    assert ringmaster_preflight.refused(refusals) == {"node2": "too small; too slow", "node3": "too old"}


def test_a_node_of_processes_is_never_provisioned() -> None:
    assert [one["check"] for one in findings({"runtime": "process"})] == ["runtime"]


def test_gpus_held_by_our_own_job_are_no_refusal() -> None:
    held = [{"pid": 7, "name": "python", "memory_mib": 900}]
    assert [one["check"] for one in findings(gpus=[GPU], gpu_processes=held, jobs=["night"])] == ["job"]


def test_what_is_accepted_becomes_a_warning() -> None:
    report = preflight_report({"node1": fact(memory_mb=512)}, {}, LIMITS, accept=["memory"])
    assert [(one["check"], one["required"]) for one in report["findings"]] == [("memory", False)]


def test_nodes_that_differ_are_warned_about() -> None:
    cluster = {"interface": "ens5", "address": "10.0.0.2", "mtu": 1300, "problem": None}
    network = {"cluster": cluster, "public": [], "routes": {}, "interfaces": []}
    report = preflight_report({"node1": fact(gpus=[GPU]), "node2": fact(network=network)}, {}, LIMITS)
    assert [(one["check"], one["required"]) for one in report["findings"]] == [("gpu_count", False), ("mtu", False)]
    other = fact(gpus=[GPU | {"model": "NVIDIA A100"}])
    report = preflight_report({"node1": fact(gpus=[GPU]), "node2": other}, {}, LIMITS)
    assert [one["check"] for one in report["findings"]] == ["gpu_model"]


def test_one_machine_under_two_names_is_refused() -> None:
    report = preflight_report({"node1": fact(machine="a"), "node2": fact(machine="a")}, {}, LIMITS)
    assert [(one["node"], one["check"], one["required"]) for one in report["findings"]] == [("node2", "machine", True)]


def test_the_table_leaves_out_what_nobody_has() -> None:
    lines = ringmaster_preflight.table(preflight_report({"a": fact(), "longer": fact()}, {}, LIMITS)["rows"])
    assert lines[0].split()[:2] == ["node", "system"]
    assert "driver" not in lines[0]
    assert len(lines) == 3


_SMI = """#!/bin/sh
case "$*" in
  *query-gpu*) echo "0, GPU-a, NVIDIA A100, the large one, 81559, 4, 580.95.05, 8.0" ;;
  *) echo "GPU-a, 4711, /usr/bin/python3, [N/A]" ;;
esac
"""
_SMI_LOST = "#!/bin/sh\necho 'Unable to determine the device handle for GPU: GPU is lost'\n"
_SMI_BROKEN = "#!/bin/sh\necho 'NVIDIA-SMI has failed because'; echo 'it could not.'; exit 9\n"


def test_gpus_and_processes_are_read_as_the_probe_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(_SMI)
    tool.chmod(0o755)
    found = gpus.look_gpus()
    assert [(gpu["model"], gpu["memory_mib"], gpu["driver"]) for gpu in found["gpus"]] == [
        ("NVIDIA A100, the large one", 81559, "580.95.05")
    ]
    assert found["gpu_processes"] == [{"gpu": "GPU-a", "pid": 4711, "name": "python3", "memory_mib": None}]
    assert (found["gpu_problem"], found["unclaimed"]) == (None, 0)
    for text, problem in ((_SMI_LOST, "GPU is lost"), (_SMI_BROKEN, "NVIDIA-SMI has failed because it could not.")):
        tool.write_text(text)
        found = gpus.look_gpus()
        assert found["gpus"] == []
        assert problem in found["gpu_problem"]


def test_gpus_whose_processes_can_not_be_listed_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(_SMI.replace('echo "GPU-a, 4711, /usr/bin/python3, [N/A]"', "echo '[Not Supported]'"))
    tool.chmod(0o755)
    found = gpus.look_gpus()
    assert [gpu["index"] for gpu in found["gpus"]] == ["0"]
    assert (found["gpu_processes"], found["gpu_problem"], found["unclaimed"]) == ([], None, 0)


@pytest.mark.parametrize("name", ["probe.py", "addresses.py"])
def test_preflight_and_training_read_a_node_with_one_file(name: str) -> None:
    link = ROOT / "playbooks" / "module_utils" / "ringmaster" / "core" / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / "launcher" / "on_node" / name


def test_the_system_is_read() -> None:
    found = look.os_release('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n')
    assert (found["id"], found["version"], found["name"]) == ("ubuntu", "24.04", "Ubuntu 24.04 LTS")
    assert look.look_system()["memory_mb"] > 0
