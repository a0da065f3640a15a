"""What the image begins with: the user's base, Debian's from a registry, or one that this machine makes itself."""

import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.image import content
from launcher.image.builder import Builder
from launcher.image.buildkit_output import Steps

_DEFAULT = f"debian:{content.SUITE}-slim"
_OURS = f"debian {content.SUITE}, by mmdebstrap"
_PIECE = 1 << 18
_GZIP = 31  # zlib's window bits for gzip's format


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base as the builder's engine has it."""

    name: str
    """By what the engine knows it."""
    id: str
    shown: str
    """What people call it."""
    digest: str = ""
    """By which a registry knows it; empty for one that was never there."""


def provide(builder: Builder, wanted: str) -> Base:
    """Return the base, on the builder: what is there is taken, else what can be pulled, else what can be made.

    Raises:
        RingmasterError: it can't be had.
    """
    made = content.base_tag(builder.means.architecture)
    if wanted:
        return _found(builder, wanted, wanted) or _pulled(builder, wanted)
    there = _found(builder, made, _OURS) or _found(builder, _DEFAULT, _DEFAULT)
    if there:
        return there
    try:
        return _pulled(builder, _DEFAULT)
    except RingmasterError as error:
        print(f"ringmaster: {error}; making one here instead, with mmdebstrap", flush=True)
        _make(builder, made, str(error))
    found = _found(builder, made, _OURS)
    assert found, "the engine has said that it imported it"
    return found


def _found(builder: Builder, name: str, shown: str) -> Base | None:
    known = builder.has(name)
    if not known:
        return None
    digests = builder.engine.images.get(known).attrs.get("RepoDigests") or [""]
    return Base(name=name, id=known, shown=shown, digest=digests[0].partition("@")[2])


def _pulled(builder: Builder, name: str) -> Base:
    print(f"ringmaster: {builder.remote.name} pulls {name}", flush=True)
    steps = Steps(f"pulling {name}")
    if builder.follow(["docker", "pull", name], b"", steps):
        said = steps.last[-1].replace("Error response from daemon: ", "") if steps.last else "it doesn't say why"
        raise builder.failed(f"{name} can't be pulled ({said})")
    found = _found(builder, name, name)
    if found is None:
        raise builder.failed(f"the engine pulled {name}, but doesn't know it by that name: use another for BASE")
    return found


def _make(builder: Builder, name: str, why: str) -> None:
    """Make it on this machine and hand it to the builder's engine, while it is being made."""
    if not shutil.which("mmdebstrap"):
        raise RingmasterError(
            f"{why}, and mmdebstrap is not on this machine to do without: install it here (apt install mmdebstrap), "
            "or name a base that can be had (BASE=)",
            exit_code=ExitCode.NOT_STARTED,
        )
    steps = Steps(f"making {name}")
    with tempfile.TemporaryFile() as errors, _mmdebstrap(builder.means.architecture, errors) as program:
        assert program.stdout is not None
        try:
            code = builder.follow(["docker", "import", "-", name], _gzipped(program.stdout), steps)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
        program.stdout.close()
        failed = program.wait()
        errors.seek(0)
        said = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    if failed and not code:
        builder.engine.images.remove(name)  # the half that came
    if failed:
        told = "; ".join(line for line in said if line.startswith("E:")) or " ".join(said[-1:])
        raise RingmasterError(
            f"mmdebstrap failed here ({told[:300]}): mend that, or name a base that can be had (BASE=)",
            exit_code=ExitCode.NOT_STARTED,
        )
    if code:
        raise builder.failed(f"its engine refuses the base: {' '.join(steps.last[-1:])}")


def _mmdebstrap(architecture: str, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    words = [
        "mmdebstrap",
        *("--quiet", "--variant=minbase", f"--architectures={architecture}", "--format=tar"),
        f"--include={','.join(content.system_packages())}",
        f"--dpkgopt={ROOT / 'docker' / 'dpkg.cfg'}",
        *(content.SUITE, "-"),
    ]
    if os.geteuid() == 0:  # what it mounts goes with it, however it ends
        words = ["unshare", "--mount", *words]
    # The same packages make the same base.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True
    )


def _gzipped(stream: IO[bytes]) -> Iterator[bytes]:
    """Compress a little: it may go over a slow uplink."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    while data := stream.read(_PIECE):
        yield squeeze.compress(data)
    yield squeeze.flush()
