"""In which order a program asks the kernel to put files on the disk, and to give them their names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


@contextmanager
def disk_calls(top: Path) -> Iterator[list[str]]:
    """Record each fsync, rename and removal below `top`, while it is done."""
    calls: list[str] = []
    fsync, replace, rename, unlink = os.fsync, os.replace, os.rename, os.unlink

    def name(path: "str | os.PathLike[str]") -> str:
        return str(Path(path).relative_to(top))

    def synced(descriptor: int) -> None:
        calls.append(f"fsync {name(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        fsync(descriptor)

    def replaced(source: str, target: str) -> None:
        calls.append(f"replace {name(target)}")
        replace(source, target)

    def renamed(source: str, target: str) -> None:
        calls.append(f"rename {name(target)}")
        rename(source, target)

    def removed(path: str) -> None:
        calls.append(f"unlink {name(path)}")
        unlink(path)

    with mock.patch.multiple(os, fsync=synced, replace=replaced, rename=renamed, unlink=removed):
        yield calls
