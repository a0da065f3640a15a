"""Checks the nodes before they are provisioned, from the probe's facts; each finding has its remedy. Pure."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the checkout, for the rules that jobs go by as well
from launcher.image.cuda import driver_problem, driver_prospect, oldest_driver
from launcher.inventory.rank_variables import interface_problems, name_problem, nccl_finds_interface, sources_of

Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class System:
    """A system that is taken, and its relatives with a warning."""

    name: str
    oldest: str
    tried: str
    """Which release the tests run on; empty: none."""


# By os-release's ID, and by `uname -m`: whether the tests run on it. The README's table is made from these (`taken`).
SYSTEMS = {
    "debian": System(name="Debian", oldest="11", tried="12"),
    "ubuntu": System(name="Ubuntu", oldest="22.04", tried=""),
}
ARCHITECTURES = {"x86_64": True, "aarch64": False}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with a node."""

    node: str
    check: str
    """The check's name; `preflight_accept` turns the finding into a warning by it."""
    required: bool
    message: str
    """What is wrong, and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The least that a node needs."""

    disk_gb: int
    memory_mb: int
    clock_s: float
    driver: str
    """NVIDIA's oldest driver that is accepted; empty: what the image's CUDA needs."""
    cuda: str
    """The CUDA of the image that is recorded; empty where none is, or it doesn't say."""


def preflight_report(
    facts: Mapping[str, Facts],
    settings: Mapping[str, Mapping[str, Any]],
    limits: Mapping[str, Any],
    accept: Sequence[str] = (),
    image_problem: str = "",
) -> dict[str, Any]:
    """Return `rows` (the table, by node) and `findings`, from the facts and inventory settings by node.

    A finding whose check is in `accept` is only a warning. `image_problem` says what is wrong with the image's name, or
    is empty.
    """
    bounds = Limits(
        disk_gb=int(limits["disk_gb"]),
        memory_mb=int(limits["memory_mb"]),
        clock_s=float(limits["clock_s"]),
        driver=str(limits["driver"]),
        cuda=str(limits["cuda"]),
    )
    all_findings = [one for node, fact in facts.items() for one in _of_node(node, fact, settings.get(node, {}), bounds)]
    all_findings += list(_compared(facts))
    if image_problem:
        all_findings.append(Finding(node="all", check="image", required=True, message=image_problem))
    findings = [{**asdict(one), "required": one.required and one.check not in accept} for one in all_findings]
    return {"rows": [row(node, fact) for node, fact in facts.items()], "findings": findings}


def taken() -> list[tuple[str, str, str]]:
    """Return what the README says about systems and architectures: which, what is taken of it, what was tried."""
    untried = "nothing; it is expected to work"
    names = " or ".join(system.name for system in SYSTEMS.values())
    return [
        *(
            (system.name, f"{system.oldest} and newer", f"{system.name} {system.tried}" if system.tried else untried)
            for system in SYSTEMS.values()
        ),
        (f"systems that name {names} as their like", "all, with a warning", "nothing"),
        *((name, "yes", "yes" if tried else untried) for name, tried in ARCHITECTURES.items()),
        ("anything else", "refused, before anything is touched", ""),
    ]


def row(node: str, fact: Facts) -> dict[str, str]:
    """Return a node's line of the table."""
    gpus = fact["gpus"]
    cluster = fact["network"]["cluster"]
    return {
        "node": node,
        "system": f"{fact['os']['id']} {fact['os']['version']}",
        "cores": str(fact["cores"]),
        "memory": f"{fact['memory_mb'] / 1024:.0f} GiB",
        "disk free": f"{fact['disk_free_gb']} GiB",
        "GPUs": f"{len(gpus)} x {gpus[0]['model']}" if gpus else "none",
        "driver": gpus[0]["driver"] if gpus else "",
        "cluster address": str(cluster["address"] or "?"),
        "interface": str(cluster["interface"] or "?"),
    }


def _of_node(node: str, fact: Facts, settings: Mapping[str, Any], limits: Limits) -> Iterator[Finding]:
    for check, required, look in _CHECKS:
        message = look(fact, settings, limits)
        if message:
            yield Finding(node=node, check=check, required=required, message=message)


def _process(_fact: Facts, settings: Mapping[str, Any], _limits: Limits) -> str:
    if settings.get("runtime") != "process":
        return ""
    return "its runtime is process: nothing is provisioned there. Use an inventory of machines (hosts.example.yml)"


def _root(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    return "" if fact["user"]["root"] else f"{fact['user']['name']} isn't root there: let that user use sudo"


def _system(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    release = fact["os"]
    if not fact["systemd"]:
        return "it doesn't run systemd: use a machine (or an image) that does"
    known = SYSTEMS.get(release["id"])
    if known is None and set(release["like"].split()) & set(SYSTEMS):
        return ""
    # A release that is only being made has no version.
    if known and (not release["version"] or _version(release["version"]) >= _version(known.oldest)):
        return ""
    listed = ", ".join(f"{system.name} {system.oldest}" for system in SYSTEMS.values())
    return f"{release['name']} isn't taken: {listed} and newer are (README, Your machines)"


def _architecture(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    if fact["arch"] in ARCHITECTURES:
        return ""
    return f"its processor is {fact['arch']}: PyTorch is there for {', '.join(ARCHITECTURES)} only"


def _relative(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    release = fact["os"]
    if release["id"] in SYSTEMS or not set(release["like"].split()) & set(SYSTEMS):
        return ""
    return f"{release['name']} is like {release['like']}, but was never tried"


def _python(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    version = tuple(int(part) for part in fact["python"].split(".")[:2])
    return "" if version >= (3, 9) else f"its Python is {fact['python']}: install 3.9 or newer"


def _room(fact: Facts, settings: Mapping[str, Any], limits: Limits) -> str:
    """Check the room on a new node. Once it has an engine, less room only means that it is in use."""
    return _disk(fact, settings, limits) if not fact["engine"]["present"] else ""


def _used_room(fact: Facts, settings: Mapping[str, Any], limits: Limits) -> str:
    return _disk(fact, settings, limits) if fact["engine"]["present"] else ""


def _disk(fact: Facts, _settings: Mapping[str, Any], limits: Limits) -> str:
    free = fact["disk_free_gb"]
    if free >= limits.disk_gb:
        return ""
    return (
        f"/var/lib has {free} GiB free, {limits.disk_gb} are needed (preflight_disk_gb): free some, or mount more there"
    )


def _memory(fact: Facts, _settings: Mapping[str, Any], limits: Limits) -> str:
    if fact["memory_mb"] >= limits.memory_mb:
        return ""
    return f"{fact['memory_mb']} MiB of memory, {limits.memory_mb} are needed (preflight_memory_mb)"


def _clock(fact: Facts, _settings: Mapping[str, Any], limits: Limits) -> str:
    offset = fact["clock_offset_s"]
    if offset is None or abs(offset) <= limits.clock_s:
        return ""
    way = "ahead of" if offset > 0 else "behind"
    return (
        f"its clock is {abs(offset):.0f} s {way} this machine's: start time synchronization (systemd-timesyncd, chrony)"
    )


def _network(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    return fact["network"]["cluster"]["problem"] or ""


def _nccl(fact: Facts, settings: Mapping[str, Any], _limits: Limits) -> str:
    used = nccl_finds_interface(settings, gpus=bool(fact["gpus"]))
    return str(fact["network"]["cluster"]["nccl_problem"]) if used else ""


def _comm_env(fact: Facts, settings: Mapping[str, Any], _limits: Limits) -> str:
    """Check the names of variables, and the interfaces in them; the role checks what can be written."""
    variables = settings.get("comm_env") or {}
    if not isinstance(variables, Mapping):
        return ""
    names = (f"ringmaster_comm_env: {problem}" for problem in map(name_problem, map(str, variables)) if problem)
    interfaces = [one["name"] for one in fact["network"]["interfaces"] if one["addresses"]]
    return "; ".join([*names, *interface_problems(sources_of({}, settings, {}), interfaces)])


def _promised(fact: Facts, settings: Mapping[str, Any], _limits: Limits) -> str:
    promised = settings.get("gpus")
    if promised is None:
        return ""
    if not str(promised).isdigit():
        return f"ringmaster_gpus is '{promised}': it must be a whole number"
    if int(promised) <= len(fact["gpus"]):
        return ""
    return f"the inventory promises {promised} GPUs (ringmaster_gpus), nvidia-smi shows {len(fact['gpus'])}: see dmesg"


def _driver(fact: Facts, _settings: Mapping[str, Any], limits: Limits) -> str:
    driver = oldest_driver(gpu["driver"] for gpu in fact["gpus"])
    if limits.driver:
        old = bool(fact["gpus"]) and _version(driver) < _version(limits.driver)
        return (
            f"its driver is {driver}, {limits.driver} or newer is wanted (preflight_driver): upgrade it" if old else ""
        )
    if limits.cuda:
        return driver_problem(driver, limits.cuda)
    what, hopeless = driver_prospect(driver)
    return what if hopeless else ""


def _old_driver(fact: Facts, _settings: Mapping[str, Any], limits: Limits) -> str:
    """Check the driver while no image says which CUDA it has to run."""
    if limits.driver or limits.cuda:
        return ""
    what, hopeless = driver_prospect(oldest_driver(gpu["driver"] for gpu in fact["gpus"]))
    return "" if hopeless else what


def _no_driver(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    if fact["gpu_problem"]:
        return f"nvidia-smi fails: {fact['gpu_problem'].rstrip('.')}: reinstall the driver, or reboot"
    if fact["unclaimed"]:
        return f"{fact['unclaimed']} NVIDIA GPUs are on the bus, but there is no nvidia-smi: install the driver"
    return ""


def _nouveau(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    return "the nouveau driver holds the GPUs: blacklist it, install NVIDIA's, reboot" if fact["nouveau"] else ""


def _held(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    if not fact["gpu_processes"] or fact["jobs"]:  # a job of ours may hold them
        return ""
    who = ", ".join(
        f"{one['name']} (pid {one['pid'] or '?'}, {one['memory_mib'] or '?'} MiB)" for one in fact["gpu_processes"]
    )
    return f"its GPUs are held by {who}: end them, or wait for their owner"


def _job(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    jobs = ", ".join(fact["jobs"])
    return f"job {jobs} runs: its engine and packages are not touched until the job has ended" if jobs else ""


def _reboot(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    return "it waits for a reboot (packages were upgraded): reboot it when convenient" if fact["reboot_pending"] else ""


def _apt(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    holder = fact["apt_locked_by"]
    return f"{holder} is installing packages: provisioning waits for it where that matters" if holder else ""


def _firewall(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    other = fact["firewall"].get("other")
    return f"{other} filters there too, and stays as it is: nodes must reach each other through it" if other else ""


def _open(fact: Facts, settings: Mapping[str, Any], _limits: Limits) -> str:
    """Check that something filters what the internet can send; `keep` and a firewall that is off are no filter."""
    mode, present, addresses = settings.get("firewall", "disabled"), fact["firewall"], fact["network"]["public"]
    filters = {"cluster_only": True, "keep": bool(present["filters"])}.get(mode, bool(present["other"]))
    if not addresses or filters:
        return ""
    return (
        f"the whole internet reaches {', '.join(addresses)}, and no firewall runs there (ringmaster_firewall: {mode}): "
        "torch accepts whoever connects while a job runs. Set ringmaster_firewall: cluster_only, unless something in "
        "front of the machine filters"
    )


def _many_routes(fact: Facts, _settings: Mapping[str, Any], _limits: Limits) -> str:
    used = {one["interface"] for one in fact["network"]["routes"].values() if one.get("interface")}
    if len(used) < 2:
        return ""
    return f"other nodes are reached through {', '.join(sorted(used))}: set ringmaster_interface if the choice is wrong"


_CHECKS: tuple[tuple[str, bool, Callable[[Facts, Mapping[str, Any], Limits], str]], ...] = (
    ("runtime", True, _process),
    ("sudo", True, _root),
    ("system", True, _system),
    ("relative", False, _relative),
    ("architecture", True, _architecture),
    ("python", True, _python),
    ("disk", True, _room),
    ("room", False, _used_room),
    ("memory", True, _memory),
    ("clock", False, _clock),
    ("network", True, _network),
    ("nccl", True, _nccl),
    ("comm_env", True, _comm_env),
    ("routes", False, _many_routes),
    ("gpus", True, _promised),
    ("driver", True, _driver),
    ("old_driver", False, _old_driver),
    ("gpu_driver", True, _no_driver),
    ("nouveau", True, _nouveau),
    ("gpu_processes", True, _held),
    ("job", False, _job),
    ("reboot", False, _reboot),
    ("apt", False, _apt),
    ("firewall", False, _firewall),
    ("open", False, _open),
)


def _compared(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """Yield what differs between the nodes: training works, but unevenly."""
    gpus = {node: ", ".join(sorted(gpu["model"] for gpu in fact["gpus"])) for node, fact in facts.items()}
    counts = {node: len(fact["gpus"]) for node, fact in facts.items()}
    mtus = {node: fact["network"]["cluster"]["mtu"] for node, fact in facts.items()}
    first: dict[str, str] = {}
    for node, fact in facts.items():
        other = first.setdefault(fact["machine"], node)
        if other != node:
            message = f"it is the same machine as {other}, under another address: one machine is one node, remove one"
            yield Finding(node=node, check="machine", required=True, message=message)
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{node} {count}" for node, count in counts.items())
        yield _difference("gpu_count", f"GPU counts differ ({shown}): nodes with more of them do more of the work")
    elif len(set(gpus.values())) > 1:
        shown = "; ".join(f"{node} {models}" for node, models in gpus.items())
        yield _difference("gpu_model", f"GPU models differ ({shown}): each step waits for the slowest")
    if len(set(mtus.values())) > 1:
        shown = ", ".join(f"{node} {mtu}" for node, mtu in mtus.items())
        yield _difference("mtu", f"MTUs differ ({shown}): large packets may get lost; set the same on all nodes")


def _difference(check: str, message: str) -> Finding:
    return Finding(node="all", check=check, required=False, message=message)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(".") if part.isdigit())


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"preflight_report": preflight_report}
