"""Finds what the user owns in the engine's folder, and whether a reset would delete it; also while no engine runs."""

from __future__ import annotations

import glob
import json
import os
import shutil
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.engine.socket import JOB, ask, job_names, names, process, running_jobs
from ansible.module_utils.ringmaster.packages.dpkg import packages

FOLDER = "/var/lib/docker"
ENGINES = ("docker.io", "docker-ce", "moby-engine")
_NAMED = 5


@dataclass(frozen=True)
class Belongings:
    """Containers and volumes of the user, by name, without what jobs have left."""

    containers: list[str]
    volumes: list[str]

    def __str__(self) -> str:
        kinds = (("containers", self.containers), ("volumes", self.volumes))
        return " and ".join(f"{kind} {_some(found)}" for kind, found in kinds if found)


def belongings(folder: str = FOLDER) -> Belongings:
    """Return what the engine lists, or, where no engine answers, what lies in its folder."""
    answers = ask("/containers/json?all=1", "/volumes")
    if answers is None:
        containers = stored(folder)
        volumes = [os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{folder}/volumes/*/")]
    else:
        containers = answers[0]
        # Volumes of other drivers are kept elsewhere.
        volumes = [one["Name"] for one in answers[1].get("Volumes") or [] if one["Driver"] == "local"]
    return Belongings(names([one for one in containers if not job_names([one])]), sorted(volumes))


def jobs_alive(folder: str = FOLDER) -> list[str]:
    """Return the running jobs; with live-restore they run on while no engine runs."""
    answers = ask(running_jobs())
    return job_names(answers[0] if answers else [one for one in stored(folder) if one["Alive"]])


def remedy() -> str:
    """Return how users can keep or remove what is theirs."""
    if shutil.which("dockerd") is None and process() is None:
        return f"there is no engine any more: install one and remove them, or move {FOLDER} to another place"
    if process() is None:
        return "start the engine first (systemctl start docker) and remove them, or reset with KEEP_PACKAGES=1"
    return "remove them (docker rm, docker volume rm), or reset with KEEP_PACKAGES=1"


def data_goes(manifest: Manifest, role: str, *, keep_packages: bool) -> bool:
    """Return whether reset would delete the folder: no engine stays, and it was empty or missing before us."""
    entry = manifest.find(role, "engine", "docker.service")
    if entry is None:
        return False
    was = entry["before"]
    if FOLDER in was["paths"] and FOLDER not in was["empty"]:
        return False
    present = shutil.which("dockerd") is not None or process() is not None
    return not present or (not keep_packages and _ours_is_there(manifest, role))


def _ours_is_there(manifest: Manifest, role: str) -> bool:
    entry, known = manifest.find(role, "packages", "apt"), packages()
    ours = [] if entry is None else [*entry["asked"], *entry["came"]]
    here = [known[name] for name in ENGINES if name in ours and name in known]
    return any(one.installed or one.unfinished for one in here)


def stored(folder: str) -> list[dict[str, Any]]:
    """Return the containers as the engine lists them, from its own notes; by its ID where those can't be read."""
    return [_container(path) for path in sorted(glob.glob(f"{folder}/containers/*/"))]


def _container(path: str) -> dict[str, Any]:
    identity = os.path.basename(os.path.dirname(path))
    try:
        noted = json.loads(read(path + "config.v2.json") or "{}")
        state = noted["State"]
        alive = bool(state["Running"]) and os.path.exists(f"/proc/{state['Pid']}")
        labels = {key: value for key, value in (noted["Config"]["Labels"] or {}).items() if key == JOB}
        host = json.loads(read(path + "hostconfig.json") or "{}")
        return {"Names": [noted["Name"]], "Labels": labels, "Alive": alive, "HostConfig": host}
    except (ValueError, KeyError, TypeError):
        return {"Names": [identity[:12]], "Labels": {}, "Alive": False, "HostConfig": {}}


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
