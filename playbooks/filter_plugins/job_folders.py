"""Where jobs and data lie on a node, whose they are, and what is wrong with that. Pure: from what the probe read."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
# What a colon or a space would need quotes for, somewhere. Two levels: what lies at the top belongs to the system.
_PATH = re.compile(r"(/[^/\s:]+){2,}")
_MODE = "0700"
# Of a longer list the number is enough.
_NAMED = 5


def folders_plan(fact: Facts, jobs: str, data: str, image_user: int) -> dict[str, Any]:
    """Return `problem` (a line; nothing may be done then), `uid`, `gid` and `folders` that are not as they shall be.

    The latter as `ringmaster_folders` takes them. Where the SSH user is root, containers run as the image's own user.
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
    """Return what is wrong with the folders, a line each; `closed` are those that their owner can't write to."""
    if plan["problem"]:
        return [plan["problem"]]
    found = [_difference(one, fact["folders"][one["path"]]) for one in plan["folders"]]
    differing = [one["path"] for one in plan["folders"]]
    if found:
        found[-1] += ": make provision TAGS=job_folders"
    who = f"{plan['uid']}:{plan['gid']}"
    return found + [
        f"{path} can't be written to by {who}, who runs the jobs: open the folders above it (chmod a+x), or mount "
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
    """A job that runs could write no longer where its folder goes to another user."""
    here = [(fact["folders"].get(one["path"]), one["uid"]) for one in differing]
    if not fact["jobs"] or all(found is None or found["uid"] == uid for found, uid in here):
        return ""
    return f"job {', '.join(fact['jobs'])} runs there, and its folders belong to another user: stop it first"


def _difference(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
    if found is None:
        return f"{wanted['path']} is missing"
    is_, shall = (f"{one['uid']}:{one['gid']} {one['mode']}" for one in (found, wanted))
    return f"{wanted['path']} is {is_}, not {shall}"


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "folders_plan": folders_plan,
            "folders_findings": folders_findings,
            "uncollected_line": uncollected_line,
        }
