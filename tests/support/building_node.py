"""A node that builds images, as far as the launcher sees it."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from docker.errors import ImageNotFound

from launcher.ssh.connection import Finished

VERSIONS = {"torch": "2.15.0", "torchvision": "0.29.2", "cuda": "13.2", "packages": {"torch": "2.15.0"}}


class Node:
    """A node with an engine, as far as a build uses it."""

    name = "node1"
    host = SimpleNamespace(settings={})

    def __init__(self) -> None:
        self.known: dict[str, dict[str, str]] = {}
        """Images by name, with their labels."""
        self.streamed: list[list[str]] = []
        self.ran: list[list[str]] = []
        self.client, self.free_kb, self.registry = "20.10.24", 50_000_000, True
        self.images = SimpleNamespace(get=self.get, remove=self.known.pop)
        self.api = SimpleNamespace(images=list)
        self.interrupted = False
        self.inspected = ""
        """What `docker image inspect` prints."""
        self.security = ["name=seccomp,profile=default"]
        self.digests: list[str] | None = None
        """Those of the base, in the registries it was pulled from or pushed to."""

    def engine(self) -> "Node":
        return self

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/var/lib/docker", "SecurityOptions": self.security}

    def version(self) -> dict[str, str]:
        return {"Arch": "amd64"}

    def get(self, name: str) -> Any:
        name = name.removeprefix("id of ")
        if name not in self.known:
            raise ImageNotFound(name)
        digests = [f"x@sha256:{name}"] if self.digests is None else self.digests
        return SimpleNamespace(id=f"id of {name}", labels=self.known[name], attrs={"RepoDigests": digests})

    def run(self, words: Sequence[str], *, limit_s: float | None = 60) -> Finished:
        self.ran.append(list(words))
        line = re.sub("^(env DOCKER_HOST=|docker -H )unix:///var/run/docker.sock ", "", " ".join(words))
        assert words[0] != "docker" or line != " ".join(words), "the user's own settings may name another engine"
        code, out = 0, ""
        if line.startswith("docker version"):
            out = self.client
        elif line.startswith("df"):
            out = f"Filesystem\n/dev/x 1 1 {self.free_kb} 1% /\n"
        elif line.startswith("docker run"):
            out = json.dumps({"architectures": "sm_75 sm_80"} if "getArchFlags" in line else VERSIONS)
        elif line.startswith("image inspect"):
            out = self.inspected
        elif line.startswith("docker buildx"):
            code = 1
        elif line.startswith("sh -c"):
            out = "/etc/ssl/certs/ca-certificates.crt\n"
        return Finished(code=code, out=out.encode(), err=b"")

    def stream(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes], on_output: Callable[[bytes], None]
    ) -> int:
        assert list(words[:2]) == ["sh", "-c"]
        if "flock" in words[2]:
            on_output(b"held\n")
            return len(list(stdin))
        assert "export DOCKER_HOST=unix:///var/run/docker.sock;" in words[2]
        words = list(words[4:])
        self.streamed.append(words)
        on_output(b"4711\n")
        if self.interrupted:
            raise KeyboardInterrupt
        if words[:2] == ["docker", "pull"]:
            on_output(b"Error response from daemon: no such host\n" if not self.registry else b"")
            self.known |= {words[2]: {}} if self.registry else {}
            return 0 if self.registry else 1
        tag = next(word.partition("=")[2] for word in words if word.startswith("--tag="))
        self.known[tag] = dict(w.partition("=")[2].split("=", 1) for w in words if w.startswith("--label="))
        return 0

    @property
    def built(self) -> list[str]:
        """The stages that were built."""
        return [word[9:] for words in self.streamed for word in words if word.startswith("--target=")]
