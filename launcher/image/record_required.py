"""Which training image an inventory's nodes run: as the inventory says, else as `make image` wrote it down."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from launcher.base.errors import RingmasterError
from launcher.image.record import REFERENCE, place
from launcher.inventory.hosts import Host

_BY_DIGEST = re.compile(r"(^|@)sha256:[0-9a-f]{64}$")


def recorded(inventory: Path, hosts: Sequence[Host]) -> str:
    """The image by digest or ID; empty where none is named.

    Raises:
        RingmasterError: the nodes are given different ones, or the record can't be read.
    """
    named = {str(host.settings["image"]) if "image" in host.settings else "" for host in hosts}
    if len(named) > 1:
        raise RingmasterError(f"{inventory}: ringmaster_image differs between nodes; one job has one image")
    given = named.pop()
    where = inventory if given else place(inventory)
    reference = given or _read(where)
    if reference and not _BY_DIGEST.search(reference):
        raise RingmasterError(
            f"{where}: the image {reference} is not named by digest or ID, and a tag may be moved: make image "
            "writes an ID, docker pull shows a digest"
        )
    return reference


def _read(path: Path) -> str:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RingmasterError(
            f"{path}: can't be read ({' '.join(str(error).split())}); make image writes it"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get(REFERENCE), str):
        raise RingmasterError(f"{path}: names no {REFERENCE}; make image writes it")
    return str(content[REFERENCE])
