"""The docs point to things that exist: files, headings, and the code they name."""

import re
from functools import cache
from pathlib import Path

import pytest

from launcher.base.paths import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "playbooks/roles").glob("*/README.md")),
]
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE_FILE = re.compile(r"`((?:benchmarks|docker|lab|launcher|playbooks|requirements|tests|trainer)/[\w/.-]+)`")
"""A path in backticks; one with a placeholder, such as `roles/<name>/`, is none."""


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}: no such file"
        assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    for path in CODE_FILE.findall(page.read_text()):
        assert (ROOT / path).exists(), f"{page.relative_to(ROOT)} names {path}, which isn't there"
