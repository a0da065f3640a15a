"""`make train` as a user types it, in this checkout, and what it left and said."""

import json
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.base.paths import ROOT

LOCAL = ROOT / "inventory" / "local.yml"
SYNTHETIC = "--dataset synthetic --epochs 2"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What `make train` left and said."""

    name: str
    output: str

    @property
    def folder(self) -> Path:
        return ROOT / "runs" / self.name

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "summary.json").read_text()))

    @property
    def plan(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "plan.json").read_text()))

    @property
    def exit_code(self) -> int:
        """The code in the last line printed; make itself says 2 for any failure."""
        return int(re.findall(r"^ringmaster: exit (\d+) \(.+\)$", self.output, re.MULTILINE)[-1])

    def lines_of(self, label: str) -> list[str]:
        """What a rank printed, by its label such as `node1:0`."""
        return re.findall(rf"^{label} *\| (.*)$", self.output, re.MULTILINE)


class Trainer:
    """`make train`, with job names of its own that are cleaned away afterwards."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def name(self) -> str:
        self._names.append(f"test-{uuid.uuid4().hex[:8]}")
        return self._names[-1]

    def command(self, *, checkout: Path = ROOT, **variables: object) -> list[str]:
        variables = {"NODES": 2, "INVENTORY": LOCAL, **variables}
        return ["make", "-s", "-C", str(checkout), "train", *(f"{key}={value}" for key, value in variables.items())]

    def __call__(
        self, *, timeout: float = 240, called_from: Path = ROOT, checkout: Path = ROOT, **variables: object
    ) -> Job:
        """Run to the end; check that make's own code fits the one in the last line.

        Args:
            called_from: where the shell is in which the user types the command.
            checkout: this checkout, or a link to it.
        """
        name = str(variables.pop("NAME", "")) or self.name()
        shell = ["sh", "-c", 'cd "$0" && "$@"', str(called_from)]
        command = [*shell, *self.command(checkout=checkout, NAME=name, **variables)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        job = Job(name=name, output=done.stdout.decode(errors="replace"))
        assert done.returncode == (2 if job.exit_code else 0), job.output
        return job

    def start(self, **variables: object) -> "tuple[str, subprocess.Popen[str]]":
        name = self.name()
        command = self.command(NAME=name, **variables)
        return name, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def clean(self) -> None:
        for name in self._names:
            shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def processes_with(text: str) -> list[str]:
    """Command lines of the processes that have `text` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if text.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return found
