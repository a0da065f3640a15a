"""SFTP without a connection: a folder here answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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

    def get(self, path: str, here: str) -> None:
        self._alive()
        self.before_get(path)
        with Path(here).open("wb") as file:  # created first, as paramiko does, whether or not there is something to get
            true = {shown: name for name, shown in self.names.items()}
            file.write(Path(path).with_name(true.get(Path(path).name, Path(path).name)).read_bytes())
        self.fetched.append(path)

    def stat(self, path: str) -> SFTPAttributes:
        self._alive()
        return SFTPAttributes.from_stat(Path(path).stat())

    def lstat(self, path: str) -> SFTPAttributes:
        self._alive()
        return SFTPAttributes.from_stat(Path(path).lstat())

    def readlink(self, path: str) -> str:
        return str(Path(path).readlink())
