"""The project's version. It has one place: pyproject.toml."""

import tomllib

from launcher.base.paths import ROOT


def version() -> str:
    """Return the version, such as 0.1.0."""
    project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["version"]
