"""An image that `make image` did not build: what is in it, and what a job can't do with it. Pure.

It is looked into once on each node that heads a job: the answer is kept there, named by image and question.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from launcher.base.paths import ON_NODE, SYSTEMS_ENGINE
from launcher.image.labels import Contents, ImageFacts
from launcher.job.container import USER_NAME
from launcher.job.rank_python import lacks_for_the_trainer

_SOURCE = ON_NODE / "image_contents.py"
_KEPT = """
file=$1
shift
[ -s "$file" ] && exec cat "$file"
mkdir -p "${file%/*}" && "$@" >"$file.$$" && mv "$file.$$" "$file" && exec cat "$file"
code=$?
rm -f "$file.$$"
exit $code
"""
"""Prints a file that is there, else makes it of what a command prints."""
_ASK = """
for python in python python3; do
    command -v "$python" >/dev/null || continue
    any=$python
    "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null || continue
    exec "$python" -c "$1"
done
[ -z "$any" ] || exec "$any" -c "$1"
echo '{}'
"""
"""Asks the Python on the image's PATH that has torch, else any."""
_TEXTS = ("python", "site", "torch", "cuda", "architectures", "problem", "capabilities")


def look_inside(image: ImageFacts, folder: str, user: str) -> tuple[str, ...]:
    """Return the command that asks an image what is in it, on a node; its output is for `parse`.

    Args:
        folder: the folder of jobs there, where the answer is kept.
        user: `uid:gid` that a job's container would run as.
    """
    source = _SOURCE.read_text(encoding="utf-8")
    name = hashlib.sha256("\n".join((image.id, _ASK, source)).encode()).hexdigest()[:16]
    return (
        *("sh", "-c", _KEPT, "sh", f"{folder}/.images/{name}.json"),
        *("docker", "-H", SYSTEMS_ENGINE, "run", "--rm", f"--user={user}"),
        *("--network=none", "--log-driver=none", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", "--env=HOME=/tmp", f"--env=USER={USER_NAME}"),
        *("--entrypoint=/bin/sh", image.id, "-c", _ASK, "sh", source),
    )


def parse(output: str) -> Contents:
    """Read what an image answered.

    Raises:
        ValueError: it is no answer.
    """
    try:
        fields: Any = json.loads(output.strip().rpartition("\n")[2])  # importing torch may print something first
        if not fields:
            return Contents()
        return Contents(
            **{key: str(fields[key]) for key in _TEXTS},
            torchrun=fields["torchrun"] is True,
            packages={str(key): str(value) for key, value in fields["packages"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def unfit(contents: Contents, *, bundled: bool) -> Iterator[str]:
    """Yield each reason why an image with these contents can't run the job.

    Args:
        bundled: whether the job is the bundled trainer's.
    """
    if not contents.python:
        yield "has no Python on its PATH"
    elif not contents.torch:
        yield f"has no torch that can be imported ({contents.problem})"
    elif not contents.torchrun:
        yield f"has no torchrun: its torch {contents.torch} lacks torch.distributed.run"
    elif not contents.site:
        yield "has a Python without a folder of packages"
    elif bundled:
        yield from lacks_for_the_trainer({**contents.packages, "torch": contents.torch})
