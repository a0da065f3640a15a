#!/usr/bin/python
"""Ansible module: does what the packages don't do for the engine: its group, its (re)start, a check before it goes.

`do: note` records how the node is before it gets an engine. `settle` settles the user's membership and what the engine
has not read yet. `release` refuses where `reset` would take away what is in use. `inspect` returns what the engine says
of itself.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.core.program import PATIENCE_S, finished
from ansible.module_utils.ringmaster.engine.data import belongings, data_goes, jobs_alive, remedy
from ansible.module_utils.ringmaster.engine.look import in_group, stale
from ansible.module_utils.ringmaster.engine.socket import ask, process
from ansible.module_utils.ringmaster.engine.undo import before

_GROUP = "docker"
_UNIT = "docker.service"
# Seconds for the engine to answer after a start: it reads all containers and images first.
_START = 90
# Seconds for systemd to start it: an engine that waits for a network or a disk may never say that it is ready.
_SETTLED = 180
_SHOWN = ("ServerVersion", "LiveRestoreEnabled", "LoggingDriver", "ContainersRunning")


def note(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Record how the node is before it gets an engine; once more if an engine from before the last record is gone."""
    manifest, role = Manifest(), parameters["role"]
    noted = manifest.find(role, "engine", _UNIT)
    now = before()
    if noted is not None and (now["present"] or not noted["before"]["present"]):
        return {"changed": False}
    if not check:
        entry = noted or manifest.note(role, "engine", _UNIT, before=now)
        entry["before"] = now
        manifest.save()
    return {"changed": True}


def settle(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Add the user to the engine's group; start the engine, or restart it if it has not read everything."""
    joined = join(parameters["role"], parameters["user"], check)
    unread, running = stale(), process() is not None
    if not check and (unread or not running):
        # Starting an engine disturbs no job: it adopts those that outlived the last one.
        if running:
            refuse_while_jobs_run("is not restarted")
            # A reload reads live-restore without a restart; with it, containers survive the restart.
            systemctl("reload")
        systemctl("restart" if running else "start")
    if not check and ask("/version") is None:
        wait()
    return {"changed": joined or bool(unread) or not running, "joined": joined, "unread": unread}


def join(role: str, user: str, check: bool) -> bool:
    """Make the user a member; return whether that was needed."""
    if in_group(user, _GROUP):
        return False
    if not check:
        Manifest().note(role, "group", _GROUP, user=user)
        run("gpasswd", "--add", user, _GROUP)
    return True


def release(parameters: dict[str, Any], _check: bool) -> dict[str, Any]:
    """Refuse while a job runs, or if the user's containers and volumes would go with the engine that we installed."""
    refuse_while_jobs_run("is not taken back")
    if data_goes(Manifest(), parameters["role"], keep_packages=parameters["keep_packages"]):
        theirs = belongings()
        if theirs.containers or theirs.volumes:
            raise ValueError(f"your {theirs} would be deleted with the engine: {remedy()}")
    return {"changed": False}


def inspect(_parameters: dict[str, Any], _check: bool) -> dict[str, Any]:
    """Return what the engine says of itself; None where it doesn't answer."""
    answers = ask("/info")
    return {"changed": False, "info": {key: answers[0][key] for key in _SHOWN} if answers else None}


def refuse_while_jobs_run(what: str) -> None:
    """Raise ValueError with the names of running jobs; asked late, because one may have started since the probe."""
    jobs = jobs_alive()
    if jobs:
        raise ValueError(f"job {', '.join(jobs)} runs there, so its engine {what}: try again when it has ended")


def systemctl(verb: str) -> None:
    """Start, restart or reload the engine; raise ValueError with its own reason where it fails."""
    try:
        # Makes systemd forget earlier starts: it refuses the fourth in a minute.
        run("systemctl", "reset-failed", _UNIT)
        run("systemctl", verb, _UNIT, limit_s=_SETTLED)
    except TimeoutError as error:
        raise ValueError(f"the engine doesn't {verb} in {_SETTLED} s: see `journalctl -u {_UNIT}`") from error
    except ValueError as error:
        raise ValueError(f"the engine doesn't {verb}: {last_words() or error}; see `journalctl -u {_UNIT}`") from error


def last_words() -> str:
    """Return the last reason that the engine logged for a failure."""
    words = ["journalctl", "--unit", _UNIT, "--lines=40", "--output=cat", "--quiet", "--no-pager"]
    lines = finished(words).stdout.splitlines()
    reasons = [line for line in lines if "failed to start daemon" in line or line.startswith("unable to")]
    return reasons[-1].strip() if reasons else ""


def wait() -> None:
    """Wait until the engine answers; raise ValueError where it doesn't in time."""
    deadline = time.monotonic() + _START
    while ask("/version") is None:
        if time.monotonic() > deadline:
            raise ValueError(f"the engine does not answer {_START} s after its start: see `journalctl -u {_UNIT}`")
        time.sleep(0.2)


def run(*words: str, limit_s: float = PATIENCE_S) -> None:
    """Run a program; raise ValueError with its errors where it fails, TimeoutError where it doesn't end."""
    done = finished(list(words), limit_s)
    if done.returncode:
        raise ValueError(f"{' '.join(words)}: {' '.join(done.stderr.split()) or done.returncode}")


_DEEDS = {"note": note, "settle": settle, "release": release, "inspect": inspect}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "do": {"type": "str", "choices": list(_DEEDS), "required": True},
            "role": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "keep_packages": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        result = _DEEDS[module.params["do"]](module.params, module.check_mode)
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
