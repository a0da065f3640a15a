"""The node that builds the image: what it has for that, and `docker build` on it, with progress and a way to stop."""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import docker
from docker.errors import DockerException, ImageNotFound

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import SYSTEMS_ENGINE
from launcher.base.terminal import visible
from launcher.image.buildkit_output import Steps
from launcher.ssh.connection import Finished, Remote

_OLDEST, _WITHOUT_BUILDX = (20, 10), (23, 0)
_SILENCE_S = 10.0
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_PIP = "/etc/pip.conf"
_WANTED = (*_CERTIFICATES, _PIP)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_ITS_ENGINE = f"DOCKER_HOST={SYSTEMS_ENGINE}"
"""What jobs and Ansible's modules ask. The user's own settings (`docker context use`) may name another engine."""
_ENVIRONMENT = ("env", "DOCKER_BUILDKIT=1", "BUILDX_BUILDER=default", "BUILDX_NO_DEFAULT_ATTESTATIONS=1")
"""Selects the engine's own builder: any other keeps its results to itself, and doesn't know the engine's images."""
_STOPPABLE = f'echo $$; export {_ITS_ENGINE}; exec "$@"'
"""Prints the id of the process first, so that it can be ended."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a node lends to a build; nothing of it stays in the image."""

    secrets: tuple[str, ...] = ()
    """Arguments of `docker build`: the certificates that this node trusts, and its pip's configuration."""
    free_gb: float
    architecture: str
    """In the engine's words: amd64, arm64."""
    maps_users: bool = False
    """Whether its engine gives containers users of their own (userns-remap)."""
    folder: str = "/"
    """Where its engine keeps images."""


class Builder:
    """A node that can build images."""

    def __init__(self, remote: Remote) -> None:
        """Look at the node.

        Raises:
            RingmasterError: it has no engine that this user may use, or it lacks what a build needs.
        """
        self.remote = remote
        self.engine: docker.DockerClient = remote.engine()
        self._check_program()
        self.means = self._look()

    def has(self, name: str) -> str:
        """Return the ID of the image with that name in the engine; empty if there is none."""
        try:
            return str(self.engine.images.get(name).id)
        except ImageNotFound:
            return ""
        except DockerException as error:
            raise self.failed(f"its Docker engine says: {error}") from error

    def build(
        self, target: str, tag: str, context: bytes, *, arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """Build one stage of docker/Dockerfile and give it a name.

        Raises:
            RingmasterError: it failed; its last lines were shown.
        """
        # In the node's own network: the engine's sends packets of 1500 bytes, which many clouds' lines drop, and it has
        # neither the node's name servers nor a proxy on the node's loopback.
        # An engine that maps users can't share it ("error mounting sysfs").
        network = [] if self.means.maps_users else ["--network=host"]
        words = [*_ENVIRONMENT, "docker", "build", *network, "--progress=plain", "--file=docker/Dockerfile"]
        words += self.means.secrets
        words += [f"--target={target}", f"--tag={tag}", *(f"--build-arg={name}" for name in _PROXIES)]
        words += [f"--build-arg={key}={value}" for key, value in arguments.items()]
        words += [f"--label={key}={value}" for key, value in labels.items()]
        steps = Steps()
        if self.follow([*words, "-"], context, steps):
            print("\n".join(f"    {visible(line)}" for line in steps.last), flush=True)
            raise self.failed("building the image failed; see its last lines above")

    def follow(self, words: Sequence[str], stdin: bytes | Iterable[bytes], steps: Steps) -> int:
        """Run a program that takes long, show its steps; return its exit code.

        In a silence, the current step is shown, and how much less is free where the engine keeps images: neither pip
        nor BuildKit tells how far it is.

        If we are stopped (by Ctrl-C or SIGTERM), the program on the node is ended too.
        """
        shown = _Shown(steps, self._free_gb)
        try:
            return self.remote.stream(["sh", "-c", _STOPPABLE, "sh", *words], stdin=stdin, on_output=shown.on_output)
        except BaseException:
            with suppress(Exception):  # the connection may be what has failed
                if shown.pid:
                    self.remote.run(["kill", shown.pid], limit_s=5)
            raise
        finally:
            shown.close()

    def run(self, words: Sequence[str], *, limit_s: float = 60.0) -> Finished:
        """Run a short `docker` command on the node."""
        return self.remote.run(["env", _ITS_ENGINE, *words], limit_s=limit_s)

    def failed(self, what: str) -> RingmasterError:
        """Return the error for a build that can't be done on this node."""
        return RingmasterError(f"{self.remote.name}: {what}", exit_code=ExitCode.NOT_STARTED)

    def _check_program(self) -> None:
        """Refuse a `docker` command that can't build: from version 23 on that takes a package of its own."""
        answer = self.run(["docker", "version", "--format", "{{.Client.Version}}"])
        version = re.match(r"(\d+)\.(\d+)", answer.text)
        if answer.code or not version:
            raise self.failed(f"the command `docker` doesn't work there ({answer.why}): make provision installs it")
        number = int(version[1]), int(version[2])
        if number < _OLDEST:
            raise self.failed(f"Docker {answer.text.strip()} is too old to build the image: 20.10 or newer is needed")
        if number >= _WITHOUT_BUILDX and self.run(["docker", "buildx", "version"]).code:
            raise self.failed(
                "its `docker build` needs buildx, which is not installed: install the package docker-buildx (with "
                "Docker's own packages: docker-buildx-plugin) there"
            )

    def _look(self) -> Means:
        try:
            info = self.engine.info()
            version = self.engine.version()
        except DockerException as error:
            raise self.failed(f"its Docker engine doesn't answer: {error}") from error
        files = self.remote.run(
            ["sh", "-c", 'for file; do [ -s "$file" ] && [ -r "$file" ] && echo "$file"; done', "sh", *_WANTED]
        ).text.splitlines()
        secrets = [f"--secret=id=ca,src={file}" for file in files if file in _CERTIFICATES][:1]
        secrets += [f"--secret=id=pip,src={_PIP}"] if _PIP in files else []
        folder = str(info.get("DockerRootDir") or "/")
        free_gb = self._free_gb(folder)
        if free_gb is None:
            raise self.failed("`df` doesn't say how much room its engine has for images")
        return Means(
            secrets=tuple(secrets),
            free_gb=free_gb,
            architecture=str(version.get("Arch") or "amd64"),
            maps_users=any("name=userns" in option.split(",") for option in info.get("SecurityOptions") or ()),
            folder=folder,
        )

    def _free_gb(self, folder: str = "") -> float | None:
        """Return the room where the engine keeps images; None if `df` doesn't say."""
        lines = self.remote.run(["df", "-Pk", folder or self.means.folder]).text.splitlines()
        return int(lines[1].split()[3]) * 1024 / 1e9 if len(lines) > 1 else None


class _Shown:
    """The part of a program's output that the user sees; a thread names the current step in a long silence."""

    def __init__(self, steps: Steps, free_gb: Callable[[], float | None]) -> None:
        self.pid = ""
        self._steps = steps
        self._free_gb = free_gb
        self._free_before = _number(free_gb)
        self._lock = threading.Lock()
        self._began = self._shown_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def on_output(self, data: bytes) -> None:
        """Take in a piece of output; the first line is the process's id."""
        with self._lock:
            if not self.pid:
                head, _, data = data.partition(b"\n")
                self.pid = head.decode(errors="replace").strip()
            for line in self._steps.feed(data):
                self._say(line)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            with self._lock:
                silent = time.monotonic() - self._shown_at >= _SILENCE_S
            if silent:
                amount = self._written()  # without the lock: asking takes a moment
                with self._lock:
                    self._say(f"… still: {self._steps.current} ({time.monotonic() - self._began:.0f} s{amount})")

    def _written(self) -> str:
        """Return how much has been written since the beginning, as far as that is known."""
        free = _number(self._free_gb)
        written = 0.0 if free is None or self._free_before is None else self._free_before - free
        return f", {written:.1f} GB of disk taken" if written > 0 else ""

    def _say(self, line: str) -> None:
        self._shown_at = time.monotonic()
        with suppress(OSError, ValueError):  # that nobody reads it any more is no reason to stop
            print(visible(line), flush=True, file=sys.stdout)


def _number(ask: Callable[[], float | None]) -> float | None:
    """Return what the node says; None where it can't be asked: what is only shown must not end the build."""
    with suppress(Exception):
        return ask()
    return None
