"""Two nodes on which a job of the user's code runs, or ran, in working folders that are folders here."""

import os
from dataclasses import replace
from pathlib import Path

from launcher.cluster.transfer.code import list_code
from launcher.cluster.transfer.upload import upload_code
from launcher.job.folder import JobFolder, create
from tests.support.cluster.cluster_job import Nodes

LONG_AGO = 1000.0
CODE = {"train.py": "print(1)\n", "pkg/state.txt": "old", "pkg/other.txt": "same"}


def write(top: Path, files: dict[str, str], *, at: float | None = LONG_AGO) -> None:
    """Write files by path; bytes that are not UTF-8 are surrogates in both."""
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        if at is not None:
            os.utime(path, (at, at))


def below(top: Path) -> dict[str, str]:
    """The content of files and the targets of links, by path."""
    return {
        str(path.relative_to(top)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes().decode("utf-8", "surrogateescape")
        for path in top.rglob("*")
        if path.is_symlink() or path.is_file()
    }


class Worked(Nodes):
    """The nodes, each with the user's code in its working folder."""

    def __init__(self, top: Path, *, work_limit: int | None = None) -> None:
        super().__init__(top)
        self.root = top / "project"
        write(self.root, CODE)
        tree = list_code(self.root, self.root / "train.py")
        self.plan = replace(self.plan, script=str(self.root / "train.py"), code=tree.hash, work_limit=work_limit)
        self.folder = JobFolder(path=top / "runs" / "worked")
        create(self.folder, self.plan)
        for path in self.dirs.values():
            (path / "job/code/train.py").unlink()
            (path / "job/code").rmdir()
        upload_code(self.remotes, tree, {name: str(path) for name, path in self.dirs.items()}, "job", say=print)

    def code(self, node: str) -> Path:
        """The working folder, while the job runs."""
        return self.dirs[node] / "job/code"

    def home(self, node: str = "node1") -> dict[str, str]:
        """What has come home of a node's working folder."""
        return below(self.folder.work_of(node, head=node == "node1"))
