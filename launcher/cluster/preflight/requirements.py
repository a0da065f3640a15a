"""A requirements file beside the user's script: whether the image has what it asks for."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from launcher.base.errors import RingmasterError
from launcher.image.labels import REQUIREMENTS, ImageFacts
from launcher.job.program import Program

NAME = "requirements.txt"
PYTHON = "python"
"""Under this name an image's packages may say which Python it has; there is no package of that name."""
_SHOWN = 3
_UNKNOWN = re.compile(r"\b(python_(full_)?version|implementation_version|platform_(release|version))\b")
"""What a marker may ask for and an image doesn't tell, but for its Python."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A requirements file."""

    path: Path
    content: bytes

    @property
    def hash(self) -> str:
        """What `make image REQUIREMENTS=` writes into the image's label."""
        return hashlib.sha256(self.content).hexdigest()


def find(program: Program) -> Wanted | None:
    """The file in the script's folder, else in the code root; the bundled trainer needs none."""
    if program.script is None:
        return None
    for folder in (program.script.parent, program.root):
        path = folder / NAME
        try:
            return Wanted(path=path, content=path.read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise RingmasterError(
                f"{path}: can't be read ({error.strerror}); the script may need what it asks for"
            ) from error
    return None


def lacking(wanted: Wanted, image: ImageFacts) -> str:
    """What the image lacks of it, with the way to mend that; empty where it has all."""
    if image.labels.get(REQUIREMENTS) == wanted.hash:
        return ""
    installed = {str(canonicalize_name(name)): version for name, version in image.packages.items()}
    environment = _environment(image, installed.get(PYTHON, ""))
    missing, unknown = [], []
    for line in _lines(wanted.content):
        found = _judge(line, installed, environment)
        if found is None:
            unknown.append(line)
        elif found:
            missing.append(found)
    remedy = f"`make image REQUIREMENTS={shlex.quote(str(wanted.path))}` puts it in"
    if missing:
        return f"{wanted.path} asks for {_few(missing)}: {remedy}"
    if unknown:
        return f"{wanted.path} has lines that can't be compared with the image ({_few(unknown)}): {remedy}"
    return ""


def _lines(content: bytes) -> list[str]:
    """The file's lines as pip reads them: continued ones joined, without comments."""
    text = re.sub(r"\\\r?\n", " ", content.decode("utf-8-sig", errors="replace"))
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _judge(line: str, installed: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """What the line asks for and is not there; empty if it is, None if that can't be told."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:  # an option (-r, -e, --hash), or the path or address of a package
        return None
    if requirement.url:
        return None
    if requirement.marker:
        if not environment.keys() >= {found[0] for found in _UNKNOWN.finditer(str(requirement.marker))}:
            return None
        if not requirement.marker.evaluate(dict(environment)):
            return ""
    version = installed.get(canonicalize_name(requirement.name))
    if version is None:
        return str(requirement)
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement} (the image has {version})"
    return None if requirement.extras else ""  # what an extra brings is not written down


def _environment(image: ImageFacts, python: str) -> dict[str, str]:
    """The image's side of markers such as `; sys_platform == "linux"`: this machine's would be another one's."""
    found = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": _MACHINES.get(image.architecture, image.architecture),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    if python:
        found |= {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    return found


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
