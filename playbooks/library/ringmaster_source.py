#!/usr/bin/python
"""Ansible module: adds vendors' package sources with their signing keys, noted, if each key is the expected one."""

from __future__ import annotations

import os
import time
import urllib.request

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.disk import read, state_of, write
from ansible.module_utils.ringmaster.core.manifest import Manifest, make_folder
from ansible.module_utils.ringmaster.packages.signing_key import armored, dearmored, fingerprints

_TRIES = 3
_PAUSE_S = 2
_PATIENCE_S = 15
_SOURCE = ("path", "text", "key_path", "key_url", "fingerprint", "variable", "otherwise")


def fetch(address: str) -> bytes:
    """Return what is at an address. It tries again, because a connection that is being set up fails for moments.

    Raises:
        OSError: it can't be fetched.
    """
    for left in reversed(range(_TRIES)):
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:  # noqa: S310  the role's own https address
                content: bytes = answer.read()
                return content
        except OSError:
            if not left:
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def signing_key(source: dict[str, str]) -> str:
    """Return the vendor's key: what was examined, written anew, whatever else lay in the file around it.

    Raises:
        ValueError: it can't be fetched, is another key, or is one of several.
    """
    address, expected = source["key_url"], source["fingerprint"].replace(" ", "")
    try:
        key = dearmored(fetch(address))
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"{address} can't be fetched ({reason}): let this node reach it, or {source['otherwise']}"
        ) from error
    found = fingerprints(key)
    if found != [expected]:
        what = f"holds {len(found)} keys, not one" if len(found) > 1 else "is not the expected key"
        raise ValueError(
            f"{address} {what} (its fingerprint is {' and '.join(found) or 'unreadable'}, not {expected}): "
            f"find out why; the role's variable {source['variable']} says which key is accepted"
        )
    return armored(key)


def ensure(role: str, sources: list[dict[str, str]], check: bool) -> list[str]:
    """Write keys and sources once all keys are there; return the paths that changed."""
    manifest = Manifest()
    files: dict[str, str] = {}
    for source in sources:
        # The key first: a source whose key is missing stops apt for everyone.
        files[source["key_path"]] = signing_key(source)
        files[source["path"]] = source["text"]
    different = {path: text for path, text in files.items() if read(path) != text}
    for path, text in {} if check else different.items():
        make_folder(manifest, role, os.path.dirname(path), mode=0o755, owner="root")
        manifest.note(role, "file", path, before=state_of(path))
        write(path, text, mode=0o644, uid=0, gid=0)
    return list(different)


def main() -> None:
    """Entry point."""
    options = {word: {"type": "str", "required": True, "no_log": False} for word in _SOURCE}
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "sources": {"type": "list", "elements": "dict", "options": options, "required": True},
        },
        supports_check_mode=True,
    )
    try:
        paths = ensure(module.params["role"], module.params["sources"], module.check_mode)
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
