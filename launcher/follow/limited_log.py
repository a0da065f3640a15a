"""A file that grows to a limit: of what is written beyond, the newest part is kept, behind the first part.

While the job runs the newest part is in two files beside it, the older of which is given up when the newer is full. At
the end they are put behind the first part, with a line that says what is missing.
"""

import shutil
from pathlib import Path
from typing import IO

MOST_BYTES = 500_000_000
"""Of a node's log: what an engine keeps of a container (`job/container`)."""


class LimitedLog:
    """Such a file, open for writing."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        """Raises:
        OSError: the file can't be made.
        """
        self.name = str(path)
        self.total_bytes = 0
        """How much was written, kept or not."""
        self.missing_lines = 0
        """How many lines were given up."""
        self._path = path
        self._first_bytes, self._part_bytes = most_bytes // 2, most_bytes // 4
        self._newer, self._older = Path(f"{path}.last"), Path(f"{path}.last.before")
        self._in_first = True
        self._bytes = self._lines = self._older_lines = 0
        """How much is in the file that is open, and how many lines; and how many are in the older of two."""
        self._file: IO[bytes] = path.open("wb")

    def write(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: the disk refuses them.
        """
        if self._bytes and self._bytes + len(lines) > (self._first_bytes if self._in_first else self._part_bytes):
            self._go_on_elsewhere()
        self._file.write(lines)
        self.total_bytes += len(lines)
        self._bytes += len(lines)
        self._lines += lines.count(b"\n")

    def flush(self) -> None:
        """Hand everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Put the parts together.

        Raises:
            OSError: the disk refuses; the parts stay, each in its file.
        """
        self._file.close()
        if self._in_first:
            return
        with self._path.open("ab") as file:
            if self.missing_lines:
                file.write(b"[ringmaster] %d lines are missing here\n" % self.missing_lines)
            for part in (self._older, self._newer):
                if part.exists():
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, file)
                    file.flush()
                    part.unlink()

    def _go_on_elsewhere(self) -> None:
        if self._in_first:
            self._file.write(
                f"[ringmaster] a log is limited to {2 * self._first_bytes / 1e6:,.0f} MB: what comes now is in "
                f"{self._newer.name} until the job ends, the newest of it\n".encode()
            )
            self._older.unlink(missing_ok=True)
        else:
            self._newer.replace(self._older)
        full, self._file = self._file, self._newer.open("wb")  # if the disk refuses it, the full one is still open
        if not self._in_first:
            self.missing_lines += self._older_lines
            self._older_lines = self._lines
        self._in_first = False
        self._bytes = self._lines = 0
        full.close()
