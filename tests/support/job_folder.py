"""A job's folder as it is packed for a node."""

import io
import os
import tarfile
from pathlib import Path

OWNER = f"{os.getuid()}:{os.getgid()}"
TOKEN = "of this launcher"


def packed(*members: tarfile.TarInfo | tuple[str, str], mode: int = 0o600) -> bytes:
    """A tar of files by name and content, and of whatever else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            entry = tarfile.TarInfo(member[0])
            entry.size, entry.mode = len(member[1].encode()), mode
            tar.addfile(entry, io.BytesIO(member[1].encode()))
    return buffer.getvalue()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
