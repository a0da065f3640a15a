"""A node that is this machine."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from launcher.inventory.hosts import Host
from launcher.ssh.connection import Finished, LostError
from tests.support.cluster.sftp import FakeSftp


class LocalRemote:
    """A connection to a node that is this machine; `job_dir` is its folder of jobs."""

    port = 22
    greeting = b""
    """What its login shell prints before a command's own output."""

    def __init__(self, job_dir: Path, name: str = "node1", address: str = "") -> None:
        self.host = Host(name=name, address=address or f"{name}.example", settings={"job_dir": str(job_dir)})
        self.name = name
        self.alive = True
        self.verbs: list[str] = []
        self.client = FakeSftp()

    def run(self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", limit_s: float = 60) -> Finished:
        if not self.alive:
            raise LostError(self.name, "cut")
        assert tuple(words[:3]) == ("python3", "-IS", "-c"), "no module of the user's, and no packages"
        self.verbs.append(words[4])
        content = stdin if isinstance(stdin, bytes) else b"".join(stdin)
        done = subprocess.run([sys.executable, *words[1:]], input=content, capture_output=True, check=False)
        return Finished(code=done.returncode, out=self.greeting + done.stdout, err=done.stderr)

    def stream(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", on_output: Callable[[bytes], None]
    ) -> int:
        done = self.run(words, stdin=stdin)
        on_output(done.out + done.err)
        return done.code

    def receive(
        self,
        words: Sequence[str],
        *,
        stdin: bytes = b"",
        on_output: Callable[[bytes], None],
        limit_s: float = 60,
        piece: int = 1 << 15,
    ) -> Finished:
        done = self.run(words, stdin=stdin, limit_s=limit_s)
        for start in range(0, len(done.out), piece):
            on_output(done.out[start : start + piece])
        return Finished(code=done.code, out=b"", err=done.err)

    def close(self) -> None:
        self.alive = False

    def sftp(self) -> Any:
        if not self.alive:
            raise LostError(self.name, "cut")
        return self.client
