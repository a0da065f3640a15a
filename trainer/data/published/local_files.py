"""Finds and reads a data set's files on this machine, in any of the usual layouts. Never changes them."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from trainer.data.published.catalog import CATALOG
from trainer.data.published.formats import DamagedError

LARGEST_MEMBER = 64 << 20
"""Bytes. A CIFAR batch has 31 MB; a file in an archive that is far beyond that is none of a set's."""


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files of a data set: one archive, or one path per file of its format."""

    name: str
    archive: Path | None = None
    files: dict[str, Path]

    def key(self) -> str:
        """Return twelve hexadecimal digits that change with any file's path, size, times or inode."""
        paths = [self.archive] if self.archive else [self.files[file] for file in sorted(self.files)]
        facts = []
        for path in paths:
            status = path.stat()
            # `cp -p` sets the modification time back, but not the time of change.
            marks = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            facts.append((str(path.resolve()), *marks))
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]

    def read(self) -> dict[str, bytes]:
        """Return each file's uncompressed content by its name.

        Raises:
            DamagedError: a file or the archive can't be unpacked, or the archive lacks a file.
        """
        if self.archive:
            return _read_archive(self.name, self.archive)
        return {file: _read(path) for file, path in self.files.items()}


def find(name: str, place: Path) -> SourceFiles | None:
    """Return the data set's files at `place`, a folder or an archive; None if there are none.

    Raises:
        DamagedError: some of the files are there, and some are missing.
    """
    described = CATALOG[name]
    if place.is_file():
        found = described.archives and _is_archive(place)
        return SourceFiles(name=name, archive=place, files={}) if found else None
    for layout in described.layouts:
        folder = place / layout
        files = {file: path for file in described.files if (path := _plain_or_gz(folder, file))}
        if files:
            if missing := [file for file in described.files if file not in files]:
                raise DamagedError(f"{folder} lacks {', '.join(missing)}")
            return SourceFiles(name=name, files=files)
    for archive in described.archives:
        if (place / archive).is_file():
            return SourceFiles(name=name, archive=place / archive, files={})
    return None


def _is_archive(path: Path) -> bool:
    return path.name.endswith((".tar.gz", ".tgz", ".tar"))


def _plain_or_gz(folder: Path, file: str) -> Path | None:
    names = (file, f"{file}.gz", file.replace("-idx", ".idx"), f"{file.replace('-idx', '.idx')}.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


def _read_archive(name: str, archive: Path) -> dict[str, bytes]:
    files = CATALOG[name].files
    contents: dict[str, bytes] = {}
    try:
        with archive.open("rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if compressed else raw
            # Members are read one after the other, and none is unpacked under its own path; "r|" can't seek back.
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    file = Path(member.name).name
                    if file in files and member.isreg():
                        if member.size > LARGEST_MEMBER:
                            raise DamagedError(f"{archive}: {file} has {member.size} bytes, too many for {name}")
                        contents[file] = cast(IO[bytes], tar.extractfile(member)).read()
            while stream.read(1 << 20):  # to the end, where gzip compares its checksum
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise DamagedError(f"{archive} is damaged: {error}") from error
    if missing := [file for file in files if file not in contents]:
        raise DamagedError(f"{archive} lacks {', '.join(missing)}")
    return contents
