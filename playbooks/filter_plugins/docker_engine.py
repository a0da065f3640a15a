"""Decides what a node's container engine lacks, from the probe's facts, before anything is touched. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
Settings = Mapping[str, Any]

_CONFIG = "/etc/docker/daemon.json"
# The packages that belong to each engine's own, and are held with it.
_FAMILIES = {
    "docker.io": ("docker.io", "docker-cli", "containerd", "runc"),
    "docker-ce": ("docker-ce", "docker-ce-cli", "containerd.io"),
    "moby-engine": ("moby-engine", "moby-cli", "moby-containerd", "moby-runc"),
}
_TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def engine_plan(facts: Facts, settings: Settings) -> dict[str, Any]:
    """Return what has to be done on a node.

    `problem` (one line; where it isn't empty, nothing may be done), `config` (keys for daemon.json), `sources` (package
    sources to add), `packages` (to install), `minimum` (their versions), `hold` (the packages to keep at their version,
    those that are installed), `settle` (whether membership, start or restart need work) and `touched` (whether there is
    anything to do at all).
    """
    config, problem = _wanted_config(facts, settings)
    engine = _engine_packages(facts, settings)
    toolkit = _toolkit_packages(facts, settings)
    names = [*engine, *toolkit]
    hold = _to_hold(facts, names) if settings["hold"] else []
    unheld = _unheld(facts, hold)
    state = facts["engine"]
    sources = list(_sources(facts, settings, engine, toolkit))
    risky = bool(names or config or state["stale"] or not state["answers"])
    return {
        "problem": problem or _problem(facts, settings, names, risky),
        "config": config,
        "sources": sources,
        "packages": names,
        "hold": hold if names or unheld else [],
        "minimum": _minimum(names, settings),
        "settle": risky or not state["user_in_group"],
        "touched": risky or not state["user_in_group"] or bool(unheld or sources),
    }


def engine_findings(facts: Facts, info: Facts | None, settings: Settings) -> list[str]:
    """Return what is wrong with an engine that was provisioned, each finding with its remedy."""
    state, toolkit = facts["engine"], facts["toolkit"]
    if info is None:
        return ["its engine doesn't answer: see `journalctl -u docker`"]
    findings = []
    if not _at_least(info["ServerVersion"], settings["minimum"]):
        findings.append(
            f"its engine is {info['ServerVersion']}, {settings['minimum']} or newer is needed: run provision"
        )
    if settings["live_restore"] and not info["LiveRestoreEnabled"]:
        findings.append("containers would die with its engine (live-restore isn't in effect): run provision")
    if state["tcp"]:
        findings.append(
            f"its engine takes orders over TCP ({'; '.join(state['tcp'])}), which makes anyone who reaches it root: "
            f"take tcp:// out of {_CONFIG} and the engine's unit"
        )
    if not state["user_in_group"]:
        findings.append(f"{facts['user']['name']} isn't in the group docker: run provision")
    plan = engine_plan(facts, settings)
    if plan["problem"] and plan["touched"]:
        findings.append(plan["problem"])
    if plan["config"]:
        findings.append(f"{_CONFIG} lacks our {', '.join(plan['config'])}: run provision")
    for source in (one for one in plan["sources"] if one["key_path"] in facts["signing_keys"]):
        keys = " and ".join(facts["signing_keys"][source["key_path"]]) or "no readable key"
        findings.append(f"apt trusts {keys} by {source['key_path']}, not {source['fingerprint']} alone: run provision")
    if plan["hold"] and not plan["packages"]:
        findings.append(f"{', '.join(_unheld(facts, plan['hold']))} may be upgraded under a job: run provision")
    if not state["cli"]:
        findings.append("it has no docker command: install docker-cli or docker-ce-cli")
    if state["stale"]:
        findings.append(f"its engine hasn't read {', '.join(state['stale'])} yet: run provision")
    if _wants_toolkit(facts, settings):
        if not toolkit["present"]:
            findings.append("it has GPUs, but not NVIDIA's container toolkit: run provision")
        elif toolkit["version"] and not _at_least(toolkit["version"], settings["toolkit_minimum"]):
            findings.append(
                f"its NVIDIA container toolkit is {toolkit['version']}, {settings['toolkit_minimum']} is needed"
            )
    return findings


def _problem(facts: Facts, settings: Settings, names: Sequence[str], risky: bool) -> str:
    state = facts["engine"]
    if state["snap"]:
        return (
            "its engine is a snap, which can't give GPUs to containers: `sudo snap remove docker`, and run provision "
            "again"
        )
    if state["podman"]:
        return (
            f"its docker command is Podman's ({state['podman']}), which runs no jobs: `sudo apt remove podman-docker`, "
            "and run provision again"
        )
    if state["rootless"]:
        return (
            f"the only engine that runs there is a user's own ({', '.join(state['rootless'])}), which can give ranks "
            "neither the node's network nor its GPUs: start the system's beside it (`sudo systemctl enable --now "
            "docker`) or stop that one (`systemctl --user stop docker`), and run provision again"
        )
    if settings["live_restore"] and state["swarm"]:
        return (
            "its engine is part of a swarm, which excludes live-restore: `docker swarm leave`, or set "
            "docker_engine_live_restore: false"
        )
    if risky and facts["jobs"]:
        return (
            f"job {', '.join(facts['jobs'])} runs there, and its engine would be changed: run provision again when it "
            "has ended"
        )
    if names and facts["in_use"]:
        return f"{', '.join(names)} would be installed: {facts['in_use']}"
    if not state["present"] and settings["source"] == "vendor" and facts["os"]["id"] not in ("debian", "ubuntu"):
        return "Docker has no packages for its system: set ringmaster_engine_source: distribution"
    return ""


def _wanted_config(facts: Facts, settings: Settings) -> tuple[dict[str, Any], str]:
    """Return the keys that daemon.json lacks, or why it can't be read; a log driver that the user chose stays."""
    present = facts["files"].get(_CONFIG)
    try:
        now = json.loads((present or {}).get("text") or "{}")
        if not isinstance(now, dict):
            raise ValueError("it isn't an object")
    except ValueError as error:
        return {}, f"{_CONFIG} isn't valid JSON ({error}): correct it"
    wanted: dict[str, Any] = {"live-restore": True} if settings["live_restore"] else {}
    if now.get("log-driver", "json-file") == "json-file" and "max-size" not in (now.get("log-opts") or {}):
        limits = {"max-size": settings["log_max_size"], "max-file": str(settings["log_max_files"])}
        wanted |= {"log-driver": settings["log_driver"], "log-opts": {**(now.get("log-opts") or {}), **limits}}
    return {key: value for key, value in wanted.items() if now.get(key) != value}, ""


def _family(facts: Facts) -> Sequence[str]:
    """Return the packages of the installed engine, or nothing."""
    return next((family for engine, family in _FAMILIES.items() if engine in facts["packages"]), ())


def _engine_packages(facts: Facts, settings: Settings) -> list[str]:
    """Return what to install for the engine: nothing where one is new enough, whoever installed it."""
    state, family = facts["engine"], _family(facts)
    half = [name for names in _FAMILIES.values() for name in names if name in facts["unfinished"]]
    if state["present"] and half:
        return half
    if state["present"] and (not family or _at_least(state["version"], settings["minimum"])):
        return []
    if family:
        return [name for name in family if name in facts["packages"]]
    if settings["source"] == "vendor":
        return ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin"]
    system, version = facts["os"]["id"], _numbers(facts["os"]["version"])
    apart = system == "debian" and version >= (13,)
    # From Docker 23 on the image builder is a package of its own, which no other package pulls in.
    builder = apart or (system == "ubuntu" and version >= (22,))
    names = ["docker.io", *(["docker-cli"] if apart else []), *(["docker-buildx"] if builder else [])]
    names += ["containerd", "runc"]
    return [*names, *(["apparmor"] if state["needs_apparmor"] else [])]


def _wants_toolkit(facts: Facts, settings: Settings) -> bool:
    return settings["toolkit"] == "present" or (settings["toolkit"] == "auto" and bool(facts["gpus"]))


def _toolkit_packages(facts: Facts, settings: Settings) -> list[str]:
    toolkit = facts["toolkit"]
    if not _wants_toolkit(facts, settings):
        return []
    if not toolkit["present"] or any(name in facts["unfinished"] for name in _TOOLKIT):
        return list(_TOOLKIT)
    # Without a version it came from no package: whoever installed it looks after it.
    if not toolkit["version"] or _at_least(toolkit["version"], settings["toolkit_minimum"]):
        return []
    return [name for name in _TOOLKIT if name in facts["packages"]]


def _to_hold(facts: Facts, coming: Sequence[str]) -> list[str]:
    """Return the packages whose upgrade restarts the engine or changes the toolkit, installed or not."""
    engine = next((family for name, family in _FAMILIES.items() if name in coming), _family(facts))
    return [*engine, *_TOOLKIT]


def _unheld(facts: Facts, hold: Sequence[str]) -> list[str]:
    return [name for name in hold if name in facts["packages"] and name not in facts["held"]]


def _minimum(names: Sequence[str], settings: Settings) -> dict[str, str]:
    floors = {name: str(settings["minimum"]) for name in _FAMILIES}
    floors |= {name: str(settings["toolkit_minimum"]) for name in _TOOLKIT}
    return {name: floors[name] for name in names if name in floors}


def _sources(
    facts: Facts, settings: Settings, engine: Sequence[str], toolkit: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Return the vendors' package sources that are needed and missing, or whose key isn't the expected one alone."""
    system = facts["os"]
    architecture = _ARCHITECTURES.get(facts["arch"], facts["arch"])
    vendors = (
        ("docker", "docker-ce" in engine, f"/{system['id']}", system["codename"], "stable"),
        ("nvidia", bool(toolkit), f"/{architecture}", "/", ""),
    )
    for name, needed, below, suite, component in vendors:
        vendor = settings[name]
        address = vendor["url"] + below
        key_path = f"/etc/apt/keyrings/ringmaster-{name}.asc"
        expected = [vendor["fingerprint"].replace(" ", "")]
        present = any(one.startswith(vendor["url"]) for one in facts["apt_sources"])
        if facts["signing_keys"].get(key_path, expected) == expected if present else not needed:
            continue
        lines = ["Types: deb", f"URIs: {address}", f"Suites: {suite}"]
        lines += [f"Components: {component}"] if component else []
        lines += [f"Architectures: {architecture}", f"Signed-By: {key_path}"]
        yield {
            "path": f"/etc/apt/sources.list.d/ringmaster-{name}.sources",
            "text": "\n".join(lines) + "\n",
            "key_path": key_path,
            "key_url": vendor["key_url"].replace("{system}", system["id"]),
            "fingerprint": vendor["fingerprint"],
            "variable": f"docker_engine_{name}",
            "otherwise": vendor["otherwise"],
        }


def _at_least(version: str | None, minimum: str) -> bool:
    return bool(version) and _numbers(str(version)) >= _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("-")[0].split("+")[0]))


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"engine_plan": engine_plan, "engine_findings": engine_findings}
