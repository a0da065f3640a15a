"""Decides who may mount the shared folder and what is mounted where: the files' texts and a node's work. Pure."""

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]
EXPORTS = "/etc/exports.d/ringmaster.exports"
FSTAB = "/etc/fstab"
_HEAD = "# Written by Ringmaster (role shared_fs); removed by reset.\n"
# Without the characters that exports(5), fstab(5) and /proc/mounts each escape in a way of their own.
_FOLDER = re.compile(r"/[^\s\\\"'#(),:]+")
_OPTIONS = re.compile(r"[^\s\\\"'#()]+")


def shared_plan(
    facts: Mapping[str, Facts], addresses: Mapping[str, str], me: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the node `me` has to do.

    `problem` (one line; where it isn't empty, nothing may be done), `install` (packages it lacks), `files` (as
    `changed_files` takes them), `folder` (as `ringmaster_files` takes it), `unmount` (a folder, or nothing) and `mount`
    (whether to mount it). `addresses` has every node of the inventory, also those that were not looked at in this run.
    """
    problem = _problem(list(addresses), settings)
    if problem:
        return {"problem": problem, "install": [], "files": [], "folder": {}, "unmount": "", "mount": False}
    fact, head, folder = facts[me], settings["head"], settings["folder"]
    entry = _entry(facts, addresses, me, settings)
    stood, mounted = _block(fact), folder in fact["mounts"]
    stale = entry is not None and bool(stood.split()) and stood.split()[:2] != entry.split()[:2]
    unmount = shared_mount(fact) if stale and shared_mount(fact) in fact["mounts"] else ""
    package = "nfs-kernel-server" if me == head else "nfs-common"
    return {
        "problem": _unknown(entry, stood, head),
        "install": [package] if package not in fact["packages"] or package in fact["unfinished"] else [],
        "files": [*_exports(facts, addresses, me, settings), *_fstab(entry)],
        "folder": {"path": folder, "how": "folder", "owner": fact["user"]["name"]},
        "unmount": unmount,
        # Not from a head that may be down: the mount would wait for minutes, and fail.
        "mount": me != head and head in facts and (not mounted or unmount == folder),
    }


def shared_mount(fact: Facts) -> str:
    """Return the folder that our line in the node's fstab mounts, whatever the settings say now; or nothing."""
    words = _block(fact).split()
    return words[1] if len(words) > 1 else ""


def packages_problem(fact: Facts, install: list[str], *, enabled: bool) -> str:
    """Return why packages can't be installed, or removed with the shared folder, where that is to be done."""
    removes = not enabled and "shared_fs" in fact["packages_of"]
    return (
        f"packages can't be changed: {fact['in_use']}" if fact["in_use"] and (removes or (enabled and install)) else ""
    )


def _problem(nodes: list[str], settings: Mapping[str, str]) -> str:
    folder, head = settings["folder"], settings["head"]
    if head not in nodes:
        return f"shared_fs_head: '{head}' is no node of the inventory: name one of {', '.join(nodes)}"
    if not _FOLDER.fullmatch(folder) or posixpath.normpath(folder) != folder or folder.startswith("//"):
        return (
            f"shared_fs_folder: '{folder}' can't be shared: give an absolute path below /, without spaces, quotes, "
            "brackets, commas, colons, backslashes, # and .., and without a / at its end"
        )
    for name in ("export_options", "mount_options"):
        if not _OPTIONS.fullmatch(settings[name]):
            return f"shared_fs_{name}: '{settings[name]}' would break its line: give options with commas, no spaces"
    return ""


def _unknown(entry: str | None, stood: str, head: str) -> str:
    if entry is not None or stood:
        return ""
    return (
        f"the address of {head} (shared_fs_head) isn't known: provision it in the same run, or set its "
        "ringmaster_cluster_ip"
    )


def _exports(
    facts: Mapping[str, Facts], addresses: Mapping[str, str], me: str, settings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the export: one line for each client, because a line without a client lets the whole world in.

    A client that was not looked at keeps its line; without one, its address in the inventory gets a line.
    """
    stands = _text(facts[me], EXPORTS)
    if me != settings["head"]:  # what remains where it was the head before
        return [{"path": EXPORTS, "text": _HEAD}] if stands else []
    headings = stands.splitlines()
    pieces: dict[str, str | None] = {}
    for node in addresses:
        if node != me:
            address = _address(facts, addresses, node)
            line = f"{settings['folder']} {address}({settings['export_options']})\n" if address else ""
            pieces[node] = None if node not in facts and f"# ringmaster {node}" in headings else line
    return [{"path": EXPORTS, "head": _HEAD, "pieces": pieces}]


def _entry(
    facts: Mapping[str, Facts], addresses: Mapping[str, str], me: str, settings: Mapping[str, str]
) -> str | None:
    """Return the line of the node's fstab; None keeps the present one, because the head was not looked at."""
    head, folder = settings["head"], settings["folder"]
    if me == head:
        return ""
    address = _address(facts, addresses, head)
    if not address or (head not in facts and _block(facts[me])):
        return None
    place = f"[{address}]" if ":" in address else address
    return f"{place}:{folder} {folder} nfs {settings['mount_options']} 0 0\n"


def _fstab(entry: str | None) -> list[dict[str, Any]]:
    return [] if entry is None else [{"path": FSTAB, "how": "block", "text": entry}]


def _address(facts: Mapping[str, Facts], addresses: Mapping[str, str], node: str) -> str:
    """Return a node's address for the others; nothing where only this machine can use it (a tunnel's end)."""
    cluster_address = facts[node]["network"]["cluster"]["address"] if node in facts else None
    address = str(cluster_address or addresses[node])
    try:
        return "" if ipaddress.ip_address(address).is_loopback else address
    except ValueError:
        return "" if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", address) or address == "localhost" else address


def _block(fact: Facts) -> str:
    return _text(fact, FSTAB)


def _text(fact: Facts, path: str) -> str:
    """Return the text of a file, or of our block in it, from the probe's facts."""
    return str((fact["files"].get(path) or {}).get("text") or "")


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "shared_plan": shared_plan,
            "shared_mount": shared_mount,
            "packages_problem": packages_problem,
        }
