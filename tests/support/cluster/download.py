"""A job's run folder on a node that is a folder here, and its download."""

import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from launcher.cluster.transfer.download import FolderDownload
from tests.support.cluster.sftp import FakeSftp


class Node:
    """A job's run folder on its node, and its download here."""

    def __init__(self, folder: Path) -> None:
        self.run, self.here = folder / "node" / "run", folder / "runs" / "job"
        self.run.mkdir(parents=True)
        self.here.mkdir(parents=True)
        self.client = FakeSftp()
        self.connections = 0
        self.download = FolderDownload(remote=self._remote, source=PurePosixPath(self.run), target=self.here)

    def _remote(self) -> Any:
        self.connections += 1
        return SimpleNamespace(sftp=lambda: self.client)

    def write(self, name: str, content: str = "x", *, at: float = 1000.0) -> Path:
        path = self.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (at, at))
        return path

    def fetch(self, below: str = "", *, finished: bool = True) -> list[str]:
        """Fetch; return the files that travelled."""
        self.client.fetched.clear()
        self.download.fetch(below, finished=finished)
        return [str(Path(path).relative_to(self.run)) for path in self.client.fetched]

    def all_here(self) -> list[str]:
        return sorted(str(path.relative_to(self.here)) for path in self.here.rglob("*") if not path.is_dir())
