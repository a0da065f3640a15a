"""The base of the image: the user's own, Debian's from a registry, or one that this machine makes itself."""

import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.base.terminal import visible
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
    """Its name in the engine."""
    id: str
    shown: str
    """Its name for people."""
    digest: str = ""
    """Its digest in a registry; empty if it never was in one."""

    def moved(self, name: str, digest: str) -> str:
        """Return in one line that its name meant something else when `digest` was recorded; else nothing."""
        if self.shown != name or not digest or digest in (self.digest, self.id):
            return ""
        again = f"; BASE={_repository(name)}@{digest} builds on that one again" if self.digest else ""
        return f"{name} has another digest ({self.digest or self.id}) than at the last build ({digest}){again}"


def provide(builder: Builder, wanted: str) -> Base:
    """Return the base, on the builder: one that is already there, else one that can be pulled, else one we make.

    Raises:
        RingmasterError: there is no way to get it.
    """
    own_tag = content.base_tag(builder.means.architecture)
    if wanted:
        return _find(builder, wanted, wanted) or _pull(builder, wanted)
    present = _find(builder, own_tag, _OURS) or _find(builder, _DEFAULT, _DEFAULT)
    if present:
        return present
    try:
        return _pull(builder, _DEFAULT)
    except RingmasterError as error:
        print(f"ringmaster: {visible(str(error))}; making one here instead, with mmdebstrap", flush=True)
        _make(builder, own_tag, str(error))
    base = _find(builder, own_tag, _OURS)
    assert base, "the engine has said that it imported it"
    return base


def engines_name(shown: str, architecture: str) -> str:
    """Return the name in the engine of a base that people know by the name `shown`."""
    return content.base_tag(architecture) if shown == _OURS else shown


def _find(builder: Builder, name: str, shown: str) -> Base | None:
    known = builder.has(name)
    if not known:
        return None
    digests = builder.engine.images.get(known).attrs.get("RepoDigests") or []
    return Base(name=name, id=known, shown=shown, digest=_digest(name, digests))


def _digest(name: str, digests: Sequence[str]) -> str:
    """Return the image's digest in the repository that it was asked from; it may have been pushed to others since."""
    pairs = [each.partition("@")[::2] for each in digests]
    return next(
        (digest for repository, digest in pairs if repository == _repository(name)), pairs[0][1] if pairs else ""
    )


def _repository(name: str) -> str:
    """Return an image's name without tag and digest."""
    path = name.partition("@")[0]
    return path.rpartition(":")[0] if ":" in path.rpartition("/")[2] else path


def _pull(builder: Builder, name: str) -> Base:
    print(f"ringmaster: {builder.remote.name} pulls {name}", flush=True)
    steps = Steps(f"pulling {name}")
    if builder.follow(["docker", "pull", name], b"", steps):
        reason = steps.last[-1].replace("Error response from daemon: ", "") if steps.last else "it doesn't say why"
        raise builder.failed(f"{name} can't be pulled ({reason})")
    base = _find(builder, name, name)
    if base is None:
        raise builder.failed(f"the engine pulled {name}, but doesn't know it by that name: use another for BASE")
    return base


def _make(builder: Builder, name: str, why: str) -> None:
    """Make the base on this machine, and stream it to the builder's engine at the same time.

    Raises:
        RingmasterError: mmdebstrap is missing or failed, or the engine refuses the result.
    """
    if not shutil.which("mmdebstrap"):
        raise RingmasterError(
            f"{why}, and this machine has no mmdebstrap to make one without it: install it here (apt install "
            "mmdebstrap), or name a base that can be pulled (BASE=)",
            exit_code=ExitCode.NOT_STARTED,
        )
    steps = Steps(f"making {name}")
    with tempfile.TemporaryFile() as errors, _mmdebstrap(builder.means.architecture, errors) as program:
        assert program.stdout is not None
        try:
            code = builder.follow(["docker", "import", "-", name], _gzipped(program.stdout, steps), steps)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
        program.stdout.close()
        failed = program.wait()
        errors.seek(0)
        stderr = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    if failed and not code:
        builder.engine.images.remove(name)  # the half that arrived
    if failed:
        reason = "; ".join(line for line in stderr if line.startswith("E:")) or " ".join(stderr[-1:])
        raise RingmasterError(
            f"mmdebstrap failed here ({reason[:300]}): fix that, or name a base that can be pulled (BASE=)",
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
    if os.geteuid() == 0:  # in a namespace of their own its mounts end with it, however it ends
        words = ["unshare", "--mount", *words]
    # Without dates of its own, the same packages make the same base.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True
    )


def _gzipped(stream: IO[bytes], steps: Steps) -> Iterator[bytes]:
    """Compress a little, as it may go over a slow uplink; the current step says how much has been sent."""
    squeeze, name, sent = zlib.compressobj(1, zlib.DEFLATED, _GZIP), steps.current, 0
    while data := stream.read(_PIECE):
        yield (piece := squeeze.compress(data))
        sent += len(piece)
        steps.current = f"{name}, {sent / 1e6:.0f} MB sent"
    yield squeeze.flush()
