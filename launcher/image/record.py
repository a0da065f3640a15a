"""`image.yml` beside the inventory: which image the nodes run, and for people what is in it.

The Ansible filter `recorded_image` (playbooks/filter_plugins/train_image.py) reads the same file for provisioning, and
words its complaints as this module does.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError
from launcher.image.content import LOCKS, Wanted
from launcher.inventory.hosts import Host, beside

NAME = "image.yml"
REFERENCE = "ringmaster_image"
"""The key that provisioning and jobs read; the others are for people."""
_ASKED = "asked"
"""The key with what the user asked for, so that the same image can be built again."""
_BY_DIGEST = re.compile(r"(^|@)sha256:[0-9a-f]{64}$")


def place(inventory: Path) -> Path:
    """Return where the image of an inventory is recorded: beside it, as its host keys are."""
    return beside(inventory, NAME)


def read_lenient(path: Path) -> str:
    """Return the recorded image; empty where there is no record or a broken one, which is about to be replaced."""
    try:
        return read_strict(path)
    except RingmasterError:
        return ""


def read_base(path: Path) -> tuple[str, str]:
    """Return the name and the digest of the base that the recorded image was built on; empty where that isn't known."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return "", ""
    values = content if isinstance(content, dict) else {}
    return str(values.get("base") or ""), str(values.get("base_digest") or "")


def read_strict(path: Path) -> str:
    """Return the recorded image; empty only where there is no record.

    Raises:
        RingmasterError: the record can't be read, or names no image.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _broken(path, f"is not YAML (line {line}: {error.problem})") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _broken(path, f"can't be read ({getattr(error, 'strerror', None) or 'not a text'})") from error
    if not isinstance(content, dict) or not isinstance(content.get(REFERENCE), str):
        raise _broken(path, f"does not say `{REFERENCE}: name@sha256:…`")
    return str(content[REFERENCE])


def asked(wanted: Wanted) -> dict[str, Any]:
    """Return what the record keeps of a request, so that `wanted_again` can repeat it."""
    names = {"base": wanted.base, "cuda": wanted.cuda, "torch": wanted.torch}
    return {_ASKED: {**names, "requirements": wanted.requirements_path}}


def asked_before(path: Path) -> dict[str, Any]:
    """Return what `asked` has put into the record, to keep it in the next one."""
    return {_ASKED: _content(path).get(_ASKED) or {}}


def forgotten(path: Path) -> str:
    """Return a warning of what the record doesn't say of the request; empty if it says all, or there is no record.

    Records have it only since images are built again for jobs.
    """
    content = _content(path)
    known = content.get(_ASKED)
    missing = [name for name in ("base", "cuda") if name not in (known if isinstance(known, dict) else {})]
    if not content or not missing:
        return ""
    had = [f"built on {content['base']}"] if content.get("base") else []
    had += [f"for CUDA {content['cuda']}"] if content.get("cuda") else []
    was = f" (that image was {' '.join(had)})" if had else ""
    names = [name.upper() for name in missing]
    return (
        f"{path} does not say which {' and '.join(names)} the image was asked for with{was}; the new one is built as "
        f"if none had been given: make image {' '.join(f'{name}=…' for name in names)} builds another"
    )


def wanted_again(path: Path) -> Wanted:
    """Return the request that the recorded image was built for, as far as it is recorded (`forgotten`).

    Where there is no record it is the usual one.

    Raises:
        RingmasterError: it can't be repeated: it had requirements, and their file is gone or has changed.
    """
    content = _content(path)
    earlier = content.get(_ASKED)
    known = earlier if isinstance(earlier, dict) else {}
    base, cuda, torch, file = (str(known.get(key) or "") for key in ("base", "cuda", "torch", "requirements"))
    again = Wanted(base=base, cuda=cuda if cuda in LOCKS else "", torch=torch)
    if not content.get("requirements"):
        return again
    with suppress(OSError):
        again = replace(again, requirements=Path(file).read_bytes(), requirements_path=file)
    if again.requirements_hash != content["requirements"]:
        raise RingmasterError(
            f"the image in {path} is on none of these nodes, and can't be built again as it was: its requirements file "
            f"({file or 'not recorded'}) is gone or has changed: make image REQUIREMENTS=<file>",
            exit_code=ExitCode.NOT_STARTED,
        )
    return again


def _content(path: Path) -> dict[str, Any]:
    """Return all that the record says; nothing where there is none, or a broken one."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def image_of(inventory: Path, hosts: Sequence[Host]) -> str:
    """Return the image that all `hosts` run, by digest or ID: the one their inventory names, else the recorded one.

    It is empty where neither is there.

    Raises:
        RingmasterError: the inventory gives the nodes different images, the record is broken, or the image is named by
            a tag.
    """
    named = {str(host.settings["image"]) if "image" in host.settings else "" for host in hosts}
    if len(named) > 1:
        raise RingmasterError(f"{inventory}: {REFERENCE} differs between nodes; one job has one image")
    from_inventory = named.pop()
    source = inventory if from_inventory else place(inventory)
    reference = from_inventory or read_strict(source)
    if reference and not _BY_DIGEST.search(reference):
        raise RingmasterError(
            f"{source}: the image {reference} is not named by digest or ID, and a tag may be moved: `docker pull "
            f"{reference}` prints its digest; write {reference.partition('@')[0]}@sha256:…"
        )
    return reference


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write the record, whole or not at all.

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


def _broken(path: Path, what: str) -> RingmasterError:
    return RingmasterError(f"the image's record {path} {what}: fix it, remove it, or make the image again")
