"""Facts about the machine that the launcher runs on: cores, GPUs, addresses, ports."""

import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.rendezvous import first_free
from launcher.on_node import probe

LOOPBACK = "127.0.0.1"
_DEVICES = Path("/dev")
_OF_GPUS = ("nvidia*", "nvhost*", "nvgpu*", "nvmap", "dxg", "kfd")
"""Device files of NVIDIA's drivers (also on Jetson and under WSL) and of AMD's."""


def cores() -> int:
    """Return how many cores this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus(environment: Mapping[str, str], devices: Path = _DEVICES) -> tuple[str, ...]:
    """Return the device ids (indices or UUIDs) of the GPUs that this machine may use, in order.

    Where `CUDA_VISIBLE_DEVICES` is set, it has chosen already, unless there is nothing to choose from. Where nvidia-smi
    is missing or fails, there is no GPU.

    Args:
        devices: the folder of device files.

    Raises:
        RingmasterError: nvidia-smi shows a GPU that can't be used, such as one that is lost.
    """
    if "CUDA_VISIBLE_DEVICES" in environment:
        return () if chosen_in_vain(environment, devices) else _chosen(environment)
    try:
        return tuple(gpu["index"] for gpu in probe.ask_gpus()())
    except RuntimeError:
        return ()
    except ValueError as error:
        raise RingmasterError(
            f"nvidia-smi shows a GPU that can't be used ({error}): reboot, or reinstall the driver; to train on the "
            "others: CUDA_VISIBLE_DEVICES=<their ids>; without GPUs: CUDA_VISIBLE_DEVICES=",
            exit_code=ExitCode.NOT_STARTED,
        ) from error


def chosen_in_vain(environment: Mapping[str, str], devices: Path = _DEVICES) -> bool:
    """Return whether `CUDA_VISIBLE_DEVICES` names GPUs on a machine without any.

    Some set it in every shell. No driver has made a device file there, so this is no broken driver, with which a job
    must not train on the CPU in silence.
    """
    return bool(_chosen(environment)) and not any(any(devices.glob(pattern)) for pattern in _OF_GPUS)


def _chosen(environment: Mapping[str, str]) -> tuple[str, ...]:
    words = (word.strip() for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(","))
    return tuple(word for word in words if word and word != "-1")


def is_this_machine(address: str) -> bool:
    """Return whether `address` (a name or an IP) is one of this machine's own: only those can be bound."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def interface_of(address: str) -> str:
    """Return the name of the network interface that has `address`; the loopback's name if that is unknown."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    if address.startswith("127."):
        return loopback
    try:
        answer = subprocess.run(
            ["ip", "-oneline", "addr", "show", "to", address], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return loopback
    match = re.match(r"\d+:\s+([^\s@:]+)", answer.stdout)
    return match[1] if match else loopback


def interfaces() -> list[str]:
    """Return the names of this machine's network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def free_port(address: str) -> int:
    """Return a TCP port for the rendezvous. It can be bound at `address` now, and so can the next port.

    Raises:
        RingmasterError: no port is free, or `address` can't be bound on this machine.
    """
    return first_free(lambda port: port_is_free(address, port) and port_is_free(address, port + 1), address)


def port_is_free(address: str, port: int) -> bool:
    """Return whether a server could listen at (address, port), and on all addresses as torch's store does.

    Raises:
        RingmasterError: `address` can't be bound on this machine.
    """
    for place in (address, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the store does: a listener takes the port, a connection in TIME_WAIT doesn't.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((place, port))
                probe.listen()
            except OSError as error:
                if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                    return False
                raise RingmasterError(
                    f"{address} can't be bound on this machine: {error.strerror}; set ringmaster_cluster_ip",
                    exit_code=ExitCode.NOT_STARTED,
                ) from error
    return True


def holds_connection(pid: int, port: int) -> bool:
    """Return whether process `pid` has a TCP socket with `port` at either end; True if that is unknown (not Linux).

    Raises:
        OSError: the process has ended.
    """
    if sys.platform != "linux":
        return True
    rows = probe.sockets(probe.socket_tables(f"/proc/{pid}"))
    inodes = {
        f"socket:[{row.inode}]"
        for row in rows
        if port in (row.port, row.remote_port) and row.state in (probe.ESTABLISHED, probe.LISTEN)
    }
    return any(_link(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir())


def _link(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""
