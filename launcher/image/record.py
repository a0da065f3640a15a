"""`image.yml` beside the inventory: which image the nodes shall have, and for people what it is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

NAME = "image.yml"
REFERENCE = "ringmaster_image"
"""The key that provisioning and jobs read; the others are for people."""


def place(inventory: Path) -> Path:
    """Where the image of an inventory is recorded: beside it, as its host keys are."""
    path = Path(os.path.abspath(inventory))  # noqa: PTH100  Ansible doesn't follow links here either
    return (path if path.is_dir() else path.parent) / NAME


def recorded(path: Path) -> str:
    """The image that stands there; empty where none does, or what does can't be read: it is about to be replaced."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(found.get(REFERENCE) or "") if isinstance(found, dict) else ""


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write it whole or not at all.

    Raises:
        RingmasterError: it can't be written.
    """
    text = "---\n# Written by `make image`; `make provision TAGS=train_image` delivers it.\n"
    text += yaml.safe_dump(dict(values), sort_keys=False)
    try:
        atomic_file.write(path, text)
    except OSError as error:
        raise RingmasterError(
            f"{path}: the image can't be recorded: {error.strerror}", exit_code=ExitCode.NOT_STARTED
        ) from error
