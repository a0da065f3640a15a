"""A requirements file beside the user's script: does the image have what it asks for? Pure, but for reading it."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from launcher.base.errors import RingmasterError
from launcher.image import markers
from launcher.image.labels import REQUIREMENTS, ImageFacts
from launcher.job.named_image import add_packages
from launcher.job.program import Program

NAME = "requirements.txt"
PYTHON = "python"
"""An image's list of packages may give its Python's version under this name; there is no package of that name."""
_SHOWN = 3
_UNKNOWN = re.compile(r"\b(python_(full_)?version|implementation_version|platform_(release|version))\b")
"""What a marker may ask for but an image doesn't report, except for its Python's version."""


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """A requirements file."""

    path: Path
    content: bytes

    @property
    def hash(self) -> str:
        """The file's hash, as `make image REQUIREMENTS=` writes it into the image's label."""
        return hashlib.sha256(self.content).hexdigest()


def find_requirements(program: Program) -> Requirements | None:
    """Return the file in the script's folder, else in the code root, a module's in the latter; the trainer needs none.

    Raises:
        RingmasterError: there is one, but it can't be read.
    """
    if program.bundled:
        return None
    folders = [program.script.parent] if program.script else []
    for folder in (*folders, program.root):
        path = folder / NAME
        try:
            return Requirements(path=path, content=path.read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise RingmasterError(
                f"{path}: can't be read ({error.strerror}); the script may need what it asks for"
            ) from error
    return None


def missing_packages(requirements: Requirements, image: ImageFacts, named: str = "") -> str:
    """Return which packages the image lacks, and how to add them.

    It is empty if the image has them all, or if nobody can know yet what the image is going to have.

    Args:
        named: the image, if it is the inventory that names it.
    """
    if image.labels.get(REQUIREMENTS) == requirements.hash or (image.expected and not image.packages):
        return ""
    installed = {str(canonicalize_name(name)): version for name, version in image.packages.items()}
    environment = markers.environment(image.architecture, installed.get(PYTHON, ""))
    missing, unknown = [], []
    for line in _lines(requirements.content):
        lack = _lack(line, installed, environment)
        if lack is None:
            unknown.append(line)
        elif lack:
            missing.append(lack)
    file = shlex.quote(str(requirements.path))
    remedy = add_packages("it", named, file) if named else f"`make image REQUIREMENTS={file}` puts it in"
    if missing:
        return f"{requirements.path} asks for {_few(missing)}: {remedy}"
    if unknown:
        return f"{requirements.path} has lines that can't be compared with the image ({_few(unknown)}): {remedy}"
    return ""


def _lines(content: bytes) -> list[str]:
    """The file's lines as pip reads them: continued ones joined, without comments."""
    text = re.sub(r"\\\r?\n", " ", content.decode("utf-8-sig", errors="replace"))
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _lack(line: str, installed: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """What the line asks for that is not there; empty if it is there, None if that can't be decided."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:  # an option (-r, -e, --hash), or the path or address of a package
        return None
    if requirement.url:
        return None
    if requirement.marker:
        if not environment.keys() >= {match[0] for match in _UNKNOWN.finditer(str(requirement.marker))}:
            return None
        if not requirement.marker.evaluate(dict(environment)):
            return ""
    version = installed.get(canonicalize_name(requirement.name))
    if version is None:
        return str(requirement)
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement} (the image has {version})"
    return None if requirement.extras else ""  # an image does not record what an extra brings


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
