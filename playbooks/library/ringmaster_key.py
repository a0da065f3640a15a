#!/usr/bin/python
"""Ansible module: makes an SSH key of the node's own for its SSH user; the private half never leaves the node."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.disk import flush
from ansible.module_utils.ringmaster.core.manifest import Manifest, make_folder
from ansible.module_utils.ringmaster.core.program import finished
from ansible.module_utils.ringmaster.ssh.node_key import derived, is_ours, is_same, public_file, remove, temporary

# ssh's default name, and another one where the user has a key (or half of one) of that name.
_NAMES = ("id_ed25519", "ringmaster_ed25519")
_MARK = "ringmaster "


def ensure(manifest: Manifest, role: str, user: str, comment: str, check: bool) -> tuple[bool, str | None]:
    """Return whether something was changed, and the public half (None where check mode would make one).

    Raises:
        ValueError: no name is left for a key.
    """
    account = pwd.getpwnam(user)
    folder = os.path.join(account.pw_dir, ".ssh")
    entry = next((one for one in manifest.entries if one["kind"] == "key" and is_ours(one)), None)
    if entry:
        changed = public_file(entry["name"]) is None
        if changed and not check:
            _write_public(entry, account)
        return changed, entry["public"]
    left = _left_by_a_lost_manifest(folder)
    if left:
        path, public = left
        if not check:
            manifest.note(role, "key", path, public=None)["public"] = public
            manifest.save()
        return True, public
    path = place_for(manifest, role, folder)
    if check:
        return True, None
    make_folder(manifest, role, folder, mode=0o700, owner=user)
    return True, _make(manifest, role, path, account, comment)


def place_for(manifest: Manifest, role: str, folder: str) -> str:
    """Return the path of a new key: one where nothing lies, except perhaps a public half that was ours.

    Raises:
        ValueError: others' keys lie at both places.
    """
    for path in (os.path.join(folder, name) for name in _NAMES):
        entry = manifest.find(role, "key", path)
        free = not os.path.lexists(f"{path}.pub") or (entry and is_same(public_file(path), entry["public"]))
        if free and not os.path.lexists(path):
            return path
    raise ValueError(f"{' and '.join(_NAMES)} in {folder} are both taken by keys of others: move one of them away")


def _left_by_a_lost_manifest(folder: str) -> tuple[str, str] | None:
    """Return path and public half of a key that has our name and our comment."""
    path = os.path.join(folder, _NAMES[1])
    public = public_file(path)
    ours = public and " ".join(public.split()[2:]).startswith(_MARK) and is_same(derived(path), public)
    return (path, public) if public and ours else None


def _make(manifest: Manifest, role: str, path: str, account: pwd.struct_passwd, comment: str) -> str:
    """Make the key as the user and return its public half.

    It is noted before it gets its name: only the noted key is ever taken for ours.
    """
    entry = manifest.note(role, "key", path, public=None)
    new = temporary(path)
    remove(new)
    _as_user(account, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", new])
    public = public_file(new)
    if public is None:
        raise ValueError(f"ssh-keygen has written no {new}.pub")
    flush(new, f"{new}.pub")  # an empty file of that name, after a power cut, would pass for a key of the user's
    if os.path.lexists(f"{path}.pub"):
        os.unlink(f"{path}.pub")  # that of the key that was noted until now
    entry["public"] = public
    manifest.save()
    os.rename(f"{new}.pub", f"{path}.pub")
    os.rename(new, path)
    flush(os.path.dirname(path))
    return public


def _write_public(entry: dict[str, Any], account: pwd.struct_passwd) -> None:
    descriptor = os.open(f"{entry['name']}.pub", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{entry['public']}\n")
        os.fchown(descriptor, account.pw_uid, account.pw_gid)


def _as_user(account: pwd.struct_passwd, command: list[str]) -> str:
    done = finished(
        command,
        cwd="/",
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
        umask=0o022,
    )
    if done.returncode:
        raise ValueError(f"{' '.join(command[:1])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "comment": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    try:
        changed, public = ensure(
            Manifest(), parameters["role"], parameters["user"], parameters["comment"], module.check_mode
        )
    except FileNotFoundError as error:
        module.fail_json(msg=f"{error.filename} is missing: apt-get install openssh-client")
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"no key for {parameters['user']}: {error}")
    module.exit_json(changed=changed, public_key=public)


if __name__ == "__main__":
    main()
