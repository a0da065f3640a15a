#!/usr/bin/python
"""Ansible module: an SSH key of the node's own for its SSH user, made here; the private half never leaves the node."""

from __future__ import annotations

import os
import pwd
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster_disk import make_folder, read
from ansible.module_utils.ringmaster_manifest import Manifest

_OURS = "ringmaster_ed25519"


def place_for(folder: str) -> str:
    """Return where a new key goes: ssh's own name, unless the user has a key (or half of one) of that name."""
    usual = os.path.join(folder, "id_ed25519")
    return os.path.join(folder, _OURS) if any(map(os.path.lexists, (usual, f"{usual}.pub"))) else usual


def ensure(manifest: Manifest, role: str, user: str, comment: str, check: bool) -> tuple[bool, str | None]:
    """Return whether something was changed, and the public half (None: check mode would make one)."""
    account = pwd.getpwnam(user)
    folder = os.path.join(account.pw_dir, ".ssh")
    noted = next((one for one in manifest.entries if (one["role"], one["kind"]) == (role, "key")), None)
    path = noted["name"] if noted else place_for(folder)
    private, public = os.path.exists(path), read(f"{path}.pub")
    if private and public and public.strip():
        if noted is None and not check:  # of our name, by a run whose manifest is lost
            manifest.note(role, "key", path, public=public.strip())
        return noted is None, public.strip()
    if check:
        return True, None
    make_folder(manifest, role, folder, mode=0o700, owner=user)
    entry = manifest.note(role, "key", path, public=None)
    _generate(path, account, comment, again=private)
    entry["public"] = (read(f"{path}.pub") or "").strip()
    manifest.save()
    return True, entry["public"]


def _generate(path: str, account: pwd.struct_passwd, comment: str, *, again: bool) -> None:
    """Make the key as the user. Where the private half stands alone, only the public one is derived from it."""
    if again:
        done = _as_user(account, ["ssh-keygen", "-y", "-P", "", "-f", path])
        text = f"{' '.join(done.split()[:2])} {comment}\n"
        descriptor = os.open(f"{path}.pub", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chown(f"{path}.pub", account.pw_uid, account.pw_gid)
        return
    if os.path.lexists(f"{path}.pub"):
        os.unlink(f"{path}.pub")
    _as_user(account, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def _as_user(account: pwd.struct_passwd, command: list[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
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
    asked = module.params
    try:
        changed, public = ensure(Manifest(), asked["role"], asked["user"], asked["comment"], module.check_mode)
    except FileNotFoundError as error:
        module.fail_json(msg=f"{error.filename} is missing: apt-get install openssh-client")
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"no key for {asked['user']}: {error}")
    module.exit_json(changed=changed, public_key=public)


if __name__ == "__main__":
    main()
