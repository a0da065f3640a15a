"""SFTP without a connection: a folder here answers."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import paramiko
from paramiko import SFTPAttributes


class FakeSftp:
    """An SFTP client that reads a folder here."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.opened: list[str] = []
        self.names: dict[str, str] = {}
        """By a file's name, the name that a hostile node shows for it."""
        self.before_get: Callable[[str], None] = lambda path: None
        self.after_block: Callable[[str], None] = lambda path: None
        self.block = 1 << 15
        self.broken = False
        self.undecodable = ""
        """The folder with a name in it that is not UTF-8."""

    def _alive(self) -> None:
        if self.broken:
            raise paramiko.SSHException("broken")

    def open(self, path: str, mode: str = "r") -> Any:
        self._alive()
        self.opened.append(path)
        return Path(path).open(mode)

    def listdir_attr(self, path: str) -> list[SFTPAttributes]:
        self._alive()
        if Path(path).name == self.undecodable:
            b"\xff".decode()
        return [
            SFTPAttributes.from_stat(each.lstat(), self.names.get(each.name, each.name))
            for each in Path(path).iterdir()
        ]

    def getfo(
        self,
        path: str,
        file: IO[bytes],
        callback: Callable[[int, int], object] | None = None,
        *,
        max_concurrent_prefetch_requests: int,
    ) -> int:
        """Write the file's content to `file`, a block at a time."""
        self._alive()
        self.before_get(path)
        true = {shown: name for name, shown in self.names.items()}
        content = Path(path).with_name(true.get(Path(path).name, Path(path).name)).read_bytes()
        for start in range(0, len(content), self.block):
            file.write(content[start : start + self.block])
            self.after_block(path)
            if callback:
                callback(min(start + self.block, len(content)), len(content))
        self.fetched.append(path)
        return len(content)

    def stat(self, path: str) -> SFTPAttributes:
        self._alive()
        return SFTPAttributes.from_stat(Path(path).stat())

    def lstat(self, path: str) -> SFTPAttributes:
        self._alive()
        return SFTPAttributes.from_stat(Path(path).lstat())

    def readlink(self, path: str) -> str:
        return str(Path(path).readlink())
