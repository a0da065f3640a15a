"""What runs on a node: as a program, with a stand-in for NVIDIA's, and its parts by what the kernel and tools show."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.on_node import probe

SOURCE = Path(probe.__file__)
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *query-gpu*)
    echo "0, GPU-a, NVIDIA A100, the large one, 81920, 4, 580.95.05, 8.0"
    echo "1, GPU-b, T4, [N/A], 9, 580.95.05, [N/A]" ;;
  *) echo "GPU-b, 4242, /usr/bin/train, v2, 40000"; echo "GPU-a, [N/A], [Not Found], [N/A]" ;;
esac
"""
TABLE = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 70 1 0 100 0 0 10 0\n"
    "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1 0 100 0 0 10 0\n"
    "   2: 0100007F:4E21 0100007F:4E20 01 00000000:00000000 00:00000000 00000000  1000        0 72 1 0 20 4 30 10 -1\n"
)
TABLE6 = (
    "  sl  local_address                         remote_address                        st tx_queue rx_queue tr\n"
    f"   0: {'0' * 32}:FFFF {'0' * 32}:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 73 1 0 100 0 0\n"
)
BROKEN = "#!/bin/sh\necho 'NVIDIA-SMI has failed because'; echo 'it could not.'; exit 9\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def install(tools: Path, name: str, text: str) -> None:
    (tools / name).write_text(text)
    (tools / name).chmod(0o755)


def told(tmp_path: Path) -> dict[str, Any]:
    """What the program prints, started as on a node."""
    folders = json.dumps({"job_dir": str(tmp_path), "data_dir": str(tmp_path / "none")})
    command = [sys.executable, "-IS", "-c", SOURCE.read_text(), folders]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    return dict(json.loads(answer.stdout))


def test_a_node_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name, path: None if name == "nvidia-smi" else f"/usr/bin/{name}")
    found = probe.look(str(tmp_path), str(tmp_path / "none"))
    assert (found["gpus"], found["gpu_processes"], found["uid"]) == ([], [], os.getuid())
    assert not {"gpus", "gpu_processes"} & found["troubles"].keys()
    assert found["job_dir"]["there"]
    assert found["job_dir"]["writable"]
    assert found["job_dir"]["free"] > 0
    assert found["data_dir"] == {"path": f"{tmp_path}/none", "there": False, "writable": False, "free": None}


def test_a_job_of_that_name_that_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "lost").symlink_to("nowhere")
    found = {name: probe.look(str(tmp_path), "/", name)["job_there"] for name in ("mine", "lost", "other", "")}
    assert found == {"mine": True, "lost": True, "other": False, "": False}


def test_gpus_and_who_holds_them(tmp_path: Path, tools: Path) -> None:
    install(tools, "nvidia-smi", NVIDIA_SMI)
    found = told(tmp_path)
    assert [tuple(gpu.values()) for gpu in found["gpus"]] == [
        ("0", "GPU-a", "NVIDIA A100, the large one", 81920, 4, "580.95.05", "8.0"),
        ("1", "GPU-b", "T4", None, 9, "580.95.05", "[N/A]"),
    ]
    assert [tuple(process.values()) for process in found["gpu_processes"]] == [
        ("GPU-b", 4242, "train, v2", 40000),
        ("GPU-a", None, "[Not Found]", None),
    ]


def test_an_older_nvidia_smi_does_not_know_the_capability(tmp_path: Path, tools: Path) -> None:
    unknown = "*compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2 ;;"
    known = 'echo "0, GPU-a, Tesla P100, PCIe, 16384, 4, 450.80.02"'
    install(tools, "nvidia-smi", f'#!/bin/sh\ncase "$*" in\n{unknown}\n*query-gpu*) {known} ;;\nesac\n')
    found = told(tmp_path)
    assert [tuple(gpu.values()) for gpu in found["gpus"]] == [
        ("0", "GPU-a", "Tesla P100, PCIe", 16384, 4, "450.80.02", "")
    ]
    assert found["troubles"] == {}


def test_a_tool_that_fails_is_told_and_spoils_nothing_else(tmp_path: Path, tools: Path) -> None:
    install(tools, "nvidia-smi", BROKEN)
    install(tools, "ip", "#!/bin/sh\nexit 3\n")
    found = told(tmp_path)
    assert (found["gpus"], found["interfaces"]) == (None, None)
    assert found["troubles"]["gpus"] == "NVIDIA-SMI has failed because it could not."
    assert found["troubles"]["interfaces"] == "ip ended with code 3"
    assert found["cores"] >= 1


def test_a_gpu_that_is_lost_is_no_gpu(tmp_path: Path, tools: Path) -> None:
    install(tools, "nvidia-smi", "#!/bin/sh\necho 'Unable to determine the device handle for GPU: GPU is lost'\n")
    assert "GPU is lost" in told(tmp_path)["troubles"]["gpus"]


def test_a_tool_that_hangs_does_not_hold_up_the_answer(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tools, "nvidia-smi", "#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(probe, "_SECONDS", 0.0)
    assert probe.look("/", "/")["troubles"]["gpus"] == "nvidia-smi did not answer in 0 s"


def test_the_oldest_python_of_a_node_can_read_it() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, 9))


def test_environment_file() -> None:
    assert probe.variables("# ours\nA==eth0\n\nB=\nno name\n") == {"A": "=eth0", "B": "", "no name": ""}
    assert probe.variables(None) is None


def test_listening_ports() -> None:
    assert probe.listening(TABLE + TABLE6) == [20000, 65535], "not 22, and not the connection from 20001"


def test_sockets_of_both_tables() -> None:
    rows = probe.sockets(TABLE + TABLE6)
    assert [(row.address, row.port, row.remote_port, row.state, row.inode) for row in rows] == [
        ("0100007F", 20000, 0, probe.LISTEN, "70"),
        ("00000000", 22, 0, probe.LISTEN, "71"),
        ("0100007F", 20001, 20000, probe.ESTABLISHED, "72"),
        ("0" * 32, 65535, 0, probe.LISTEN, "73"),
    ]
    assert probe.sockets("") == []
    banner = "Welcome to the cluster: please keep your jobs short and neat, thanks\n9: a b c d e f g h i j k\n"
    assert probe.sockets(banner + TABLE + banner + TABLE6) == rows, "what a login prints is no row"


def test_tables_of_a_kernel_without_ipv6(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(TABLE)
    assert probe.socket_tables(str(tmp_path)) == TABLE


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, 2 << 30), ("max", 2 << 30), ("9223372036854771712", 2 << 30), ("536870912", 1 << 29)],
)
def test_memory_is_the_lower_of_the_machines_and_its_cgroups(tmp_path: Path, limit: str | None, expected: int) -> None:
    meminfo, file = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:       2097152 kB\nMemFree: 1 kB\n")
    if limit is not None:
        file.write_text(f"{limit}\n")
    assert probe.memory(str(meminfo), [str(file)]) == expected
    with pytest.raises(ValueError, match="MemTotal"):
        probe.memory(str(tmp_path / "none"), [])


def test_interfaces() -> None:
    shown = [
        {},
        {
            "ifname": "eth0",
            "mtu": 1400,
            "addr_info": [
                {"local": "10.0.0.1", "prefixlen": 24, "label": "eth0"},
                {"family": "inet"},
                {"local": "fd00::1", "prefixlen": 64, "deprecated": True},
                {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
            ],
        },
        {"ifname": "eth1", "mtu": 1500, "addr_info": []},
    ]
    assert probe.interfaces(json.dumps(shown)) == [
        {
            "name": "eth0",
            "mtu": 1400,
            "addresses": ["10.0.0.1/24"],
            "every": ["10.0.0.1", "fd00::1"],
            "first_ipv4": "10.0.0.1",
            "first_ipv6": "fd00::1",
        }
    ]


@pytest.mark.parametrize(
    ("conf", "defaults", "other", "expected"),
    [
        ("ENABLED=yes\n", 'DEFAULT_INPUT_POLICY="DROP"\n', "", "ufw"),
        ("ENABLED=yes\n", 'DEFAULT_INPUT_POLICY="ACCEPT"\n', "", ""),
        ("ENABLED=no\n", 'DEFAULT_INPUT_POLICY="DROP"\n', "", ""),
        (None, None, "", ""),
        ("ENABLED=no\n", None, "nftables", "nftables"),
    ],
)
def test_what_filters_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str | None, defaults: str | None, other: str, expected: str
) -> None:
    texts = {"ufw.conf": conf, "ufw": defaults, "program": conf, "link": other or None}
    for name, text in texts.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(probe, "_UFW", str(tmp_path / "program"))
    monkeypatch.setattr(probe, "_UFW_FILES", (str(tmp_path / "ufw.conf"), str(tmp_path / "ufw")))
    monkeypatch.setattr(probe, "_FIREWALLS", {"nftables": str(tmp_path / "link")})
    assert probe.firewall() == expected
