"""The Docker engine under the lab: found, or the distribution's installed and started, which `purge` takes back."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import docker
from docker.errors import DockerException

from lab.base.place import ENGINE_RECORD, LABEL, STATE
from lab.base.say import say, step
from lab.host import packages
from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

_LEFT_BY_THE_ENGINE = ("/var/lib/docker", "/var/lib/containerd", "/etc/docker", "/run/docker", "/run/containerd")
_START_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Record:
    """The lab's additions to this machine for an engine, so that `lab-down PURGE=1` can take back exactly these."""

    packages: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that the engine made and that did not exist before."""
    pid: int = 0
    """The process of the engine, if the lab started it itself because there is no systemd; 0: none."""
    started: str = ""
    """That process's start time in the kernel's count: a process id may be used again."""
    forwarding: str = "1"
    """The value of net.ipv4.ip_forward before."""


def connect() -> docker.DockerClient | None:
    """Return a client of the engine at DOCKER_HOST or at the default socket, or None if none answers."""
    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except (DockerException, OSError):
        return None
    return client


def needed() -> docker.DockerClient:
    """Return a client of the engine.

    Raises:
        RingmasterError: none answers.
    """
    client = connect()
    if client is None:
        raise RingmasterError("no Docker engine answers here; `make lab` starts one", exit_code=ExitCode.NOT_STARTED)
    return client


def ensure() -> docker.DockerClient:
    """Return a client of the engine; install and start the distribution's if there is none.

    Raises:
        RingmasterError: there is none, and this is no Debian or Ubuntu, or the user isn't root.
    """
    if not sys.platform.startswith("linux"):
        raise RingmasterError("the lab needs Linux: its nodes' addresses are reached directly; run it there")
    client = connect()
    if client is None:
        reason = _why_not_installable()
        if reason:
            raise RingmasterError(
                f"no Docker engine answers here, and {reason}; install and start Docker, "
                "or run this as root on Debian or Ubuntu and the lab does it",
                exit_code=ExitCode.NOT_STARTED,
            )
        _install()
        _start()
        client = needed()
    return client


def _why_not_installable() -> str:
    if os.environ.get("DOCKER_HOST"):
        return f"DOCKER_HOST names another ({os.environ['DOCKER_HOST']})"
    if shutil.which("dockerd") and os.geteuid() != 0:
        return "starting the installed one needs root (or your user in the group docker)"
    if os.geteuid() != 0:
        return "installing one needs root"
    return "" if shutil.which("apt-get") else "this system has no apt-get"


def _install() -> None:
    if shutil.which("dockerd"):
        return
    # Written before anything is installed, so that an interrupted installation can be taken back too.
    new = tuple(folder for folder in _LEFT_BY_THE_ENGINE if not Path(folder).exists())
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
    _write(replace(read_record(), folders=new, forwarding=forwarding))
    say("there is no Docker engine here: installing the distribution's (make lab-down PURGE=1 takes it back)")
    with step("installing docker.io"):
        packages.install("docker.io", note=note_packages)


def _start() -> None:
    """Start the installed engine: with systemd if that is running, else as a process in a session of its own."""
    with step("starting the Docker engine"):
        if Path("/run/systemd/system").is_dir():
            subprocess.run(["systemctl", "start", "docker"], check=True, timeout=_START_SECONDS)
        else:
            _start_process()
        deadline = time.monotonic() + _START_SECONDS
        while connect() is None:
            if time.monotonic() > deadline:
                raise RingmasterError(
                    f"the Docker engine doesn't answer {_START_SECONDS} s after its start; see {STATE / 'dockerd.log'}",
                    exit_code=ExitCode.NOT_STARTED,
                )
            time.sleep(0.2)


def _start_process() -> None:
    STATE.mkdir(exist_ok=True)
    with (STATE / "dockerd.log").open("ab") as log:
        process = subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    _write(replace(read_record(), pid=process.pid, started=_start_time(process.pid)))


def read_record() -> Record:
    """Return what the lab added to this machine; empty if nothing."""
    try:
        stored = json.loads(ENGINE_RECORD.read_text())
    except FileNotFoundError:
        return Record()
    return Record(**{**stored, "packages": tuple(stored["packages"]), "folders": tuple(stored["folders"])})


def note_packages(added: tuple[str, ...]) -> None:
    """Record packages that the lab installed for itself."""
    if added:
        record = read_record()
        _write(replace(record, packages=(*record.packages, *added)))


def _write(record: Record) -> None:
    STATE.mkdir(exist_ok=True)
    atomic_file.write_json(ENGINE_RECORD, asdict(record))


def purge() -> None:
    """Stop and remove the engine and the packages that the lab installed; an engine that was there before stays.

    Raises:
        RingmasterError: the engine has containers of others.
    """
    if not ENGINE_RECORD.exists():
        say("nothing to purge: the lab of this checkout installed no Docker engine")
        return
    record = read_record()
    _refuse_if_others_use_it()
    _stop(record)
    if record.packages:
        with step(f"removing {len(record.packages)} packages that the lab had installed"):
            _clear_network()
            packages.remove(record.packages)
        for folder in record.folders:
            _remove_tree(Path(folder))
        for group in Path("/sys/fs/cgroup").glob("*/docker"):  # empty: no container is left
            with contextlib.suppress(OSError):
                group.rmdir()
        for leftover in ("/run/docker.sock", "/run/docker.pid"):
            Path(leftover).unlink(missing_ok=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text(record.forwarding)
    ENGINE_RECORD.unlink()
    (STATE / "dockerd.log").unlink(missing_ok=True)


def _refuse_if_others_use_it() -> None:
    client = connect()
    others = client.containers.list(all=True) if client else []
    if others:
        what = ", ".join(f"{other.name} ({LABEL}={other.labels.get(LABEL, 'none')})" for other in others[:3])
        raise RingmasterError(
            f"the Docker engine has containers of others: {what}; remove them, then: make lab-down PURGE=1"
        )


def _stop(record: Record) -> None:
    if Path("/run/systemd/system").is_dir() and record.packages:
        subprocess.run(["systemctl", "stop", "docker", "docker.socket", "containerd"], check=False, timeout=60)
    if not record.pid or _start_time(record.pid) != record.started:
        return
    with step("stopping the Docker engine"):
        os.kill(record.pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        # A new engine must not start while the old one's containerd is still running. dockerd waits for it; so do we.
        while _start_time(record.pid) == record.started and time.monotonic() < deadline:
            time.sleep(0.1)


def _start_time(pid: int) -> str:
    """Return when a process started, in the kernel's count; empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _remove_tree(folder: Path) -> None:
    """Remove a folder that the engine made, after unmounting everything that it left mounted there."""
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    for place in sorted((Path(path) for path in mounted if Path(path).is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", str(place)], check=False, capture_output=True, timeout=20)
    shutil.rmtree(folder, ignore_errors=True)


def _clear_network() -> None:
    """Remove the engine's bridge and rules, while the tool for that is still installed.

    It touches only the engine's own chains, and the jumps to them.
    """
    subprocess.run(["ip", "link", "delete", "docker0"], check=False, capture_output=True, timeout=20)
    for table in ("filter", "nat"):
        saved = subprocess.run(["iptables-save", "-t", table], check=False, capture_output=True, text=True, timeout=20)
        kept = [line for line in saved.stdout.splitlines() if "DOCKER" not in line and "docker0" not in line]
        kept = [line.replace(":FORWARD DROP", ":FORWARD ACCEPT") for line in kept]
        subprocess.run(
            ["iptables-restore", "-T", table], input="\n".join(kept) + "\n", text=True, check=False, timeout=20
        )
