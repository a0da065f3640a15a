"""Finds the running containers for which no package may be installed or removed; also while no engine runs.

dpkg makes systemd read its units again, and that takes the GPUs away from containers that run.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.ringmaster.engine.data import FOLDER, jobs_alive, stored
from ansible.module_utils.ringmaster.engine.socket import ask, job_names, names


def in_use(folder: str = FOLDER) -> str:
    """Return why no package may be installed or removed now, with the ways out; empty where any may."""
    jobs, others = jobs_alive(folder), gpu_containers(folder)
    if not jobs and not others:
        return ""
    who = [f"job {', '.join(jobs)}"] if jobs else []
    who += [f"container {', '.join(others)}"] if others else []
    stop = [f"`make stop NAME={name}`" for name in jobs] + [f"`docker stop {name}`" for name in others]
    return (
        f"{' and '.join(who)} runs there and could lose its GPUs, because dpkg makes systemd read its units again: "
        f"wait for its end, or stop it ({', '.join(stop)}), and try again"
    )


def refuse_in_use() -> None:
    """Raise ValueError where no package may be installed or removed now."""
    reason = in_use()
    if reason:
        raise ValueError(reason)


def gpu_containers(folder: str = FOLDER) -> list[str]:
    """Return the names of the running containers, jobs' excepted, that were given GPUs, whoever started them."""
    answers = ask("/containers/json")
    if answers is None:
        running = [one for one in stored(folder) if one["Alive"]]
    else:
        # One question for each: a container that has ended meanwhile must not spoil the others' answers.
        asked = ((one, ask(f"/containers/{one['Id']}/json")) for one in answers[0])
        running = [{**one, "HostConfig": told[0]["HostConfig"]} for one, told in asked if told]
    return names([one for one in running if has_gpus(one["HostConfig"]) and not job_names([one])])


def has_gpus(host: dict[str, Any]) -> bool:
    """Return whether a container was given GPUs: by `--gpus`, by NVIDIA's runtime, or as devices."""
    devices = [str(one.get("PathOnHost")) for one in host.get("Devices") or []]
    return (
        bool(host.get("DeviceRequests"))
        or host.get("Runtime") == "nvidia"
        or any(one.startswith("/dev/nvidia") for one in devices)
    )
