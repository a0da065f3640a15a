"""What a node's probe answers, read, and the host that it is in the inventory."""

import json
from typing import Any

from launcher.cluster.preflight.probe_answer import ProbeAnswer, parse
from launcher.inventory.hosts import Host

FOLDERS = {"job_dir": "/jobs", "data_dir": "/data"}


def interface(name: str, *addresses: str, mtu: int = 1500) -> dict[str, Any]:
    """Return an interface as the probe shows it, with addresses (with the prefix's length) in the kernel's order."""
    plain = [one.partition("/")[0] for one in addresses]
    return {
        "name": name,
        "mtu": mtu,
        "addresses": list(addresses),
        "every": plain,
        "first_ipv4": next((one for one in plain if ":" not in one), ""),
        "first_ipv6": next((one for one in plain if ":" in one), ""),
    }


ANSWER: dict[str, Any] = {
    "troubles": {},
    "uid": 1000,
    "gid": 1000,
    "user": "ops",
    "architecture": "x86_64",
    "cores": 8,
    "memory": 1 << 34,
    "memlock": 65536,
    "comm_env": {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"},
    "image": {"reference": "sha256:r", "id": "sha256:i", "name": "here@sha256:n"},
    "firewall": "",
    "listening": [20000],
    "devices": [],
    "job_there": False,
    "job_dir": {"path": "/jobs", "there": True, "writable": True, "free": 10**12},
    "data_dir": {"path": "/data", "there": True, "writable": True, "free": 10**12},
    "certificates": True,
    "interfaces": [
        interface("lo", "127.0.0.1/8", mtu=65536),
        interface("eth0", "192.0.2.1/24"),
        interface("eth1", "10.0.0.1/24", "10.0.0.101/24", mtu=9000),
    ],
    "gpus": [
        {
            "index": index,
            "uuid": uuid,
            "model": "A100",
            "memory_mib": 81920,
            "used_mib": 4,
            "driver": "580.95.05",
            "capability": "8.0",
        }
        for index, uuid in (("0", "GPU-a"), ("1", "GPU-b"))
    ],
    "gpu_processes": [],
    "time": 1000.0,
}


def host(name: str = "node1", **settings: Any) -> Host:
    return Host(name=name, address=f"{name}.example", settings=settings)


def answer(**changed: Any) -> ProbeAnswer:
    return parse(host(**FOLDERS), json.dumps({**ANSWER, **changed}), heard_at=1000.0)
