"""A job's folder on its nodes, from this side: created with its content, asked about, closed."""

import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ON_NODE
from launcher.job import container
from launcher.job.plan import NodePlan
from launcher.ssh.connection import Remote

_PIECE = 1 << 20
_SOURCE = ON_NODE / "job_folder.py"


def planned_job_dir(node: NodePlan) -> str:
    """Return the folder of all jobs on a node, as planned."""
    return str(Path(container.node_folder(node.container, container.RUN)).parent.parent)


def ask(remote: Remote, *words: str, files: Iterator[bytes] | bytes = b"") -> dict[str, Any]:
    """Run `on_node/job_folder.py` with these words on a node; return its answer.

    Raises:
        RingmasterError: it refuses, or it fails on the node.
    """
    done = remote.run(("python3", "-IS", "-c", _SOURCE.read_text(encoding="utf-8"), *words), stdin=files, limit_s=120)
    if done.code != 0:
        code = ExitCode.USAGE if done.code == 3 else ExitCode.NOT_STARTED
        raise RingmasterError(f"{remote.name}: {done.why}", exit_code=code)
    try:
        answer: dict[str, Any] = json.loads(
            done.text.strip().rpartition("\n")[2]
        )  # a login shell may print a greeting first
    except ValueError as error:
        output = " ".join(done.text.split())[:100]
        raise RingmasterError(
            f"{remote.name}: its answer is {output!r}: its shell must print nothing when it runs a command (~/.bashrc, "
            "/etc/profile)",
            exit_code=ExitCode.NOT_STARTED,
        ) from error
    return answer


def packed(contents: Mapping[str, bytes], files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a tar, piece by piece, of `contents` and of local files and links; only their owner may read them.

    Raises:
        RingmasterError: a file became shorter in the meantime.
    """
    for name, content in contents.items():
        yield _head(name, len(content)) + content + _padding(len(content))
    for name, path in files.items():
        if path.is_symlink() and _stays_inside(name, str(path.readlink())):
            yield _link(name, str(path.readlink()))
            continue
        with path.open("rb") as source:
            size = left = path.stat().st_size
            yield _head(name, size)
            while left:
                piece = source.read(min(_PIECE, left))
                if not piece:
                    raise RingmasterError(f"{path} became shorter while it was read; try again")
                left -= len(piece)
                yield piece
        yield _padding(size)
    yield b"\0" * 2 * tarfile.BLOCKSIZE


def _head(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.PAX_FORMAT)


def _stays_inside(name: str, leads_to: str) -> bool:
    target = os.path.normpath(os.path.join(os.path.dirname(name), leads_to))  # noqa: PTH118, PTH120 - not a path on this machine
    return not leads_to.startswith("/") and not target.startswith("..")


def _link(name: str, leads_to: str) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, leads_to
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)
