"""Decides where jobs and data lie on a node and who owns them, and finds what is wrong there. Pure, from the facts."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
# Without colons and spaces, which would need quotes somewhere. Two levels, as the top level belongs to the system.
_PATH = re.compile(r"(/[^/\s:]+){2,}")
_MODE = "0700"
# How many names are listed; the rest is a number.
_NAMED = 5


def folders_plan(fact: Facts, jobs: str, data: str, image_user: int) -> dict[str, Any]:
    """Return `problem`, `uid`, `gid` and `folders`.

    `problem` is one line; where it isn't empty, nothing may be done. `folders` are those that differ from the wanted
    ones, as `ringmaster_folders` takes them. Where the SSH user is root, containers run as the image's own user.
    """
    user = fact["user"]
    uid, gid = (user["uid"], user["gid"]) if user["uid"] else (image_user, image_user)
    wanted = {"mode": _MODE, "uid": uid, "gid": gid}
    differing = [
        {"path": path, "jobs": path == jobs, **wanted} for path in (jobs, data) if fact["folders"].get(path) != wanted
    ]
    return {
        "problem": _problem(jobs, data) or _in_use(fact, differing),
        "uid": uid,
        "gid": gid,
        "folders": differing,
    }


def folders_findings(fact: Facts, plan: Mapping[str, Any], closed: Sequence[str]) -> list[str]:
    """Return what is wrong with the folders, one line each; their owner can't write to those in `closed`."""
    if plan["problem"]:
        return [plan["problem"]]
    findings = [_difference(one, fact["folders"][one["path"]]) for one in plan["folders"]]
    differing = [one["path"] for one in plan["folders"]]
    if findings:
        findings[-1] += ": make provision TAGS=job_folders"
    who = f"{plan['uid']}:{plan['gid']}"
    return findings + [
        f"{who}, who runs the jobs, can't write to {path}: open the folders above it (chmod a+x), or mount "
        "its disk for writing"
        for path in closed
        if path not in differing
    ]


def uncollected_line(folders: Sequence[str]) -> str:
    """Return which jobs' results a reset would lose, and what to do about it."""
    names = [posixpath.basename(path) for path in folders]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"results of {', '.join(names[:_NAMED])}{more} lie there and were never fetched: make logs NAME={names[0]} "
        f"fetches them; to do without them: rm -r {folders[0]} there; then reset again"
    )


def _problem(jobs: str, data: str) -> str:
    for setting, path in (("ringmaster_job_dir", jobs), ("ringmaster_data_dir", data)):
        if not _PATH.fullmatch(str(path)) or posixpath.normpath(path) != path:
            return (
                f"{setting}: '{path}' can't be used: give an absolute path of at least two levels, such as "
                "/data/ringmaster, without spaces, colons and .., and without a / at its end"
            )
    if f"{jobs}/".startswith(f"{data}/") or f"{data}/".startswith(f"{jobs}/"):
        return f"ringmaster_job_dir and ringmaster_data_dir: neither may lie in the other ({jobs}, {data})"
    return ""


def _in_use(fact: Facts, differing: Sequence[Mapping[str, Any]]) -> str:
    """Return why folders can't change hands: a running job could no longer write to its own."""
    here = [(fact["folders"].get(one["path"]), one["uid"]) for one in differing]
    if not fact["jobs"] or all(present is None or present["uid"] == uid for present, uid in here):
        return ""
    return f"job {', '.join(fact['jobs'])} runs there, and its folders belong to another user: stop it first"


def _difference(wanted: Mapping[str, Any], present: Mapping[str, Any] | None) -> str:
    if present is None:
        return f"{wanted['path']} is missing"
    is_, shall = (f"{one['uid']}:{one['gid']} {one['mode']}" for one in (present, wanted))
    return f"{wanted['path']} is {is_}, not {shall}"


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "folders_plan": folders_plan,
            "folders_findings": folders_findings,
            "uncollected_line": uncollected_line,
        }
