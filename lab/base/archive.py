"""A tar archive in memory, the form in which files enter a container."""

import io
import tarfile
import time


class Archive:
    """An archive that is being filled."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115  (closed in content())

    def add(self, path: str, content: bytes | str, *, mode: int = 0o644, owner: int = 0) -> None:
        """Add a file; unpacking makes the folders that don't exist yet."""
        data = content.encode() if isinstance(content, str) else content
        self._entry(path, tarfile.REGTYPE, mode, owner, data)

    def add_folder(self, path: str, *, mode: int = 0o755, owner: int = 0) -> None:
        """Add a folder, with a mode and an owner of its own."""
        self._entry(path, tarfile.DIRTYPE, mode, owner, b"")

    def content(self) -> bytes:
        """End the archive and return it."""
        self._tar.close()
        return self._buffer.getvalue()

    def _entry(self, path: str, kind: bytes, mode: int, owner: int, data: bytes) -> None:
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode, info.uid, info.gid, info.size = kind, mode, owner, owner, len(data)
        info.mtime = time.time()
        self._tar.addfile(info, io.BytesIO(data))
