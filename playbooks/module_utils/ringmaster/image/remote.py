"""Asks a remote registry how large an image is, before it is pulled."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import Any

from ansible.module_utils.ringmaster.image.engine import command

_SECONDS = 30
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def compressed_size(name: str, home: str) -> int | None:
    """Return the bytes that a pull of the image `name` (by digest) fetches; None where the registry doesn't say."""
    try:
        content = _manifest(name, home)
        if "manifests" in content:
            content = _manifest(f"{name.partition('@')[0]}@{one_for(content, platform.machine())}", home)
        return sum(int(layer["size"]) for layer in content["layers"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return None  # the pull says what is wrong


def one_for(index: dict[str, Any], machine: str) -> str:
    """Return the digest of the image for this kind of machine, out of an index for several. Pure.

    Raises:
        KeyError: the index has none.
    """
    wanted = _ARCHITECTURES.get(machine, machine)
    for one in index["manifests"]:
        if one.get("platform", {}).get("architecture") == wanted:
            return str(one["digest"])
    raise KeyError(wanted)


def _manifest(name: str, home: str) -> dict[str, Any]:
    words, environment = command(home, "manifest", "inspect", name)
    done = subprocess.run(words, env=environment, capture_output=True, check=True, timeout=_SECONDS)
    content: dict[str, Any] = json.loads(done.stdout)
    return content
