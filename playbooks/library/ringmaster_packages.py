#!/usr/bin/python
"""Ansible module: installs packages with apt, noted so that `reset` purges exactly the packages that it brought.

Unlike `ansible.builtin.apt` it notes all packages that will come before it installs them, goes on where it (or dpkg)
was killed, waits for others' locks and names their holders, and never upgrades, removes or marks what was there. While
containers with GPUs run, or jobs, nothing is installed.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.engine.in_use import refuse_in_use
from ansible.module_utils.ringmaster.packages.apt import Apt, DownloadError, Step, UnknownPackageError
from ansible.module_utils.ringmaster.packages.dpkg import Package, at_least, packages

_AGAIN = "check its network and the sources in /etc/apt, and run provision again"


def missing(names: list[str], minimum: dict[str, str], have: dict[str, Package]) -> list[str]:
    """Return the packages that are missing, or older than the minimum."""
    return [name for name in names if name not in have or not _good(have[name], minimum.get(name, "0"))]


def _good(package: Package, minimum: str) -> bool:
    return package.installed and at_least(package.version, minimum)


def note(manifest: Manifest, role: str, plan: list[Step], names: list[str], have: dict[str, Package]) -> None:
    """Record the packages that will come and were not there, before they come."""
    entry = manifest.note(
        role,
        "packages",
        "apt",
        asked=[],
        came=[],
        left=[],
        upgraded={},
    )
    for step in plan:
        before = have.get(step.name)
        if step.old:
            entry["upgraded"].setdefault(step.name, step.old)
        elif step.name not in entry["asked"] + entry["came"]:
            entry["asked" if step.name in names else "came"].append(step.name)
            if before is not None and before.state == "config-files":
                entry["left"].append(step.name)
    manifest.save()


def planned(apt: Apt, names: list[str]) -> list[Step]:
    """Return the packages that would come; fetch the lists first where they don't know all of them.

    Raises:
        UnknownPackageError: the fresh lists don't know them either.
    """
    try:
        return apt.plan(names)
    except UnknownPackageError:
        problem = apt.update()
    try:
        return apt.plan(names)
    except UnknownPackageError as error:
        raise UnknownPackageError(f"{problem or error}: {_AGAIN}") from error


def install(apt: Apt, manifest: Manifest, role: str, names: list[str]) -> None:
    """Download, note, install; lists that promise what the mirror no longer has are fetched again, once.

    Raises:
        DownloadError: a download fails with the fresh lists too.
    """
    have = packages()
    automatic = {name for name in names if name in have and have[name].installed} - apt.manual()
    plan = planned(apt, names)
    try:
        apt.download(names)
    except DownloadError:
        apt.update()
        plan = planned(apt, names)
        try:
            apt.download(names)
        except DownloadError as error:
            raise DownloadError(f"{error}: {_AGAIN}") from error
    note(manifest, role, plan, names, have)
    apt.install(names)
    apt.mark("auto", sorted(automatic))


def unhold(apt: Apt, manifest: Manifest, role: str, names: list[str], have: dict[str, Package]) -> None:
    """Release packages that are too old and held by us.

    Raises:
        ValueError: the user holds one, which only the user may release.
    """
    held = [name for name in names if name in have and have[name].wanted == "hold"]
    users = [name for name in held if manifest.find(role, "hold", name) is None]
    if users:
        raise ValueError(
            f"{', '.join(users)} is too old ({have[users[0]].version}), and you hold it at that version: "
            f"`sudo apt-mark unhold {' '.join(users)}`, and run provision again"
        )
    apt.mark("unhold", held)


def hold(apt: Apt, manifest: Manifest, role: str, names: list[str], check: bool) -> list[str]:
    """Keep packages at their version; present holds are their owner's, and stay."""
    have = packages()
    free = [name for name in names if name in have and have[name].installed and have[name].wanted != "hold"]
    if free and not check:
        for name in free:
            manifest.note(role, "hold", name)
        apt.mark("hold", free)
    return free


def ensure(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do all of it and return the module's result."""
    role, names, minimum = parameters["role"], parameters["names"], parameters["minimum"]
    apt, manifest = Apt(parameters["lock_timeout"]), Manifest()
    have = packages()
    wanted = missing(names, minimum, have)
    if wanted:
        refuse_in_use()  # asked late: a job may have started since the probe
    continued = False
    if wanted and not check:
        continued = apt.finish_interrupted()
        wanted = missing(names, minimum, packages())
    if wanted and not check:
        unhold(apt, manifest, role, wanted, packages())
        install(apt, manifest, role, wanted)
        still = missing(wanted, minimum, packages())
        if still:
            old = ", ".join(f"{name} below {minimum[name]}" if name in minimum else name for name in still)
            raise ValueError(f"its package sources have only {old}: add a source that has a newer one")
    held = hold(apt, manifest, role, parameters["hold"], check)
    return {"changed": bool(wanted or continued or held), "installed": wanted, "held": held}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            # The oldest version that is accepted, by package.
            "minimum": {"type": "dict", "default": {}},
            # Packages to keep at their version, those that are installed then.
            "hold": {"type": "list", "elements": "str", "default": []},
            # Seconds to wait for others that hold apt's locks.
            "lock_timeout": {"type": "int", "default": 180},
        },
        supports_check_mode=True,
    )
    try:
        result = ensure(module.params, module.check_mode)
    except (OSError, ValueError, KeyError) as error:
        what = "install" if module.params["names"] else "hold"
        module.fail_json(msg=f"can't {what} {', '.join(module.params['names'] or module.params['hold'])}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
