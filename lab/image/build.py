"""Builds a node image: a plain image of the distribution, the packages it lacks, the lab's own files."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import DockerException
from docker.models.containers import Container
from docker.models.images import Image
from docker.types import Mount

from lab.base import command
from lab.base.archive import Archive
from lab.base.place import CHECKOUT, CHECKOUT_LABEL, IMAGE_LABEL, LABEL
from lab.base.say import say
from lab.host import engine, packages
from lab.host.facts import Host
from lab.image.recipe import BASE, CLEAN, NODE_FILES, SETUP, Recipe
from launcher.base.errors import ExitCode, RingmasterError

HOST_FOLDER = "/run/ringmaster-lab-host"  # only an empty folder of it stays; a node begins with an empty /run
REPOSITORY = f"ringmaster-lab-{CHECKOUT}"
LABEL_VALUE = f"{CHECKOUT}-build"
"""The label of a build's container."""
_INSTALL = (
    "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && apt-get -qq update "
    "&& apt-get -qq -o Dpkg::Options::=--force-unsafe-io install --yes --no-install-recommends {} "
    "&& rm /usr/sbin/policy-rc.d"
)


@contextlib.contextmanager
def base(client: docker.DockerClient, wanted: Recipe, host: Host) -> Iterator[str]:
    """Give the name of a plain image of the distribution: made by mmdebstrap, which needs no registry, or pulled.

    mmdebstrap comes first if it is installed. Pulling comes before installing it, as that changes nothing on this
    machine.
    The name is removed afterwards, unless it was there before; the layers stay as long as an image is built on them.
    """
    pulled = f"{wanted.distribution}:{wanted.codename}"
    name = f"{REPOSITORY}:base"
    if not shutil.which("mmdebstrap"):
        if client.images.list(pulled):
            yield pulled
            return
        name = _pull(client, pulled, host) or name
    if name != pulled:
        _import(client, wanted, host, name)
    try:
        yield name
    finally:
        client.images.remove(name)


def _pull(client: docker.DockerClient, name: str, host: Host) -> str:
    """Return `name` once it is pulled; empty if mmdebstrap was installed instead.

    Raises:
        RingmasterError: it can't be pulled, and mmdebstrap can't be installed.
    """
    try:
        client.images.pull(name)
    except DockerException as error:
        if not host.distribution or os.geteuid() != 0:
            raise RingmasterError(
                f"can't pull {name} ({' '.join(str(error).split())[:200]}), and there is no mmdebstrap to make one; "
                "fix the access to the registry, or install mmdebstrap",
                exit_code=ExitCode.NOT_STARTED,
            ) from error
        say("no image registry can be reached: installing mmdebstrap (make lab-down PURGE=1 takes it back)")
        packages.install("mmdebstrap", note=engine.note_packages)
        return ""
    return name


def _import(client: docker.DockerClient, wanted: Recipe, host: Host, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ringmaster-lab-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # apt unpacks as a user of its own
        tar = Path(folder) / "base.tar"
        _mmdebstrap(wanted, host, tar)
        repository, _, tag = name.partition(":")
        changes = [f"LABEL {CHECKOUT_LABEL}={CHECKOUT}"]
        answer = client.api.import_image_from_file(str(tar), repository=repository, tag=tag, changes=changes)
    if '"error"' in answer:
        raise RingmasterError(f"the engine refuses the node's file system: {answer.strip()}")


def _mmdebstrap(wanted: Recipe, host: Host, tar: Path) -> None:
    words = [
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(BASE)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        # A node is told at its start which archive this machine uses; the image doesn't say.
        '--customize-hook=rm -f "$1/etc/apt/sources.list" "$1/etc/resolv.conf" "$1/etc/hostname"',
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
        wanted.codename, str(tar), *(["-"] if host.apt_sources else []),
    ]  # fmt: skip
    # In a namespace of their own its mounts end with it, however it ends. It unpacks into a folder beside the tar.
    if os.geteuid() == 0:
        words = ["unshare", "--mount", *words]
    done = command.on_host(words, text=host.apt_sources, environment={"TMPDIR": str(tar.parent)}, timeout=900)
    if done.returncode:
        reason = "; ".join(line for line in done.stdout.splitlines() if line.startswith("E:")) or done.stdout[-300:]
        raise RingmasterError(
            f"mmdebstrap failed: {reason.strip()}; does `apt-get update` work on this machine?",
            exit_code=ExitCode.NOT_STARTED,
        )


def finish(client: docker.DockerClient, start: str, wanted: Recipe, host: Host) -> Image:
    """Add what `start` lacks, in a container of it, and commit the result as the image.

    Raises:
        RingmasterError: a command in the container failed.
    """
    with tempfile.TemporaryDirectory(prefix="ringmaster-lab-") as folder:
        handed = Path(folder)
        handed.chmod(0o755)  # apt reads the bundle as a user of its own
        (handed / "sources.list").write_text(host.apt_sources)
        (handed / "ca.crt").write_text(host.certificates)
        (handed / "apt.conf").write_text(_apt_conf(host))
        container = client.containers.create(
            start, ["sleep", "infinity"], network_mode="host", labels={LABEL: LABEL_VALUE},
            # A mount, not a volume: the image would note a volume as one that every node needs.
            mounts=[Mount(HOST_FOLDER, str(handed), type="bind", read_only=True)],
        )  # fmt: skip
        try:
            container.start()
            # Given to each command: the environment of the container itself would stay in the image.
            environment = {
                **dict(host.proxies), "APT_CONFIG": f"{HOST_FOLDER}/apt.conf", "DEBIAN_FRONTEND": "noninteractive",
            }  # fmt: skip
            missing = _in(
                container, f"for p in {' '.join(wanted.packages)}; do dpkg -s $p >/dev/null 2>&1 || echo $p; done"
            )
            if missing:
                _in(container, _INSTALL.format(" ".join(missing.split())), environment)
            container.put_archive("/", _lab_files())
            _in(container, (SETUP if wanted.kind == "bare" else "") + CLEAN)
            return container.commit(
                repository=REPOSITORY, tag=f"{wanted.kind}-{wanted.digest}",
                changes=[f"LABEL {IMAGE_LABEL}={wanted.kind}-{wanted.digest} {CHECKOUT_LABEL}={CHECKOUT}"],
            )  # fmt: skip
        finally:
            container.remove(force=True, v=True)


def _lab_files() -> bytes:
    archive = Archive()
    for path in sorted(NODE_FILES.iterdir()):
        archive.add(f"usr/lib/ringmaster-lab/{path.name}", path.read_bytes(), mode=0o755)
    return archive.content()


def _apt_conf(host: Host) -> str:
    lines = host.apt_options
    if host.apt_sources:
        lines += f'Dir::Etc::sourcelist "{HOST_FOLDER}/sources.list";\nDir::Etc::sourceparts "-";\n'
    return lines + (f'Acquire::https::CaInfo "{HOST_FOLDER}/ca.crt";\n' if host.certificates else "")


def _in(container: Container, script: str, environment: dict[str, str] | None = None) -> str:
    code, text = command.run(container, "sh", "-c", script, environment=environment)
    if code:
        reason = text.strip().splitlines()[-1:] or ["no output"]
        raise RingmasterError(f"building the node image failed: {reason[0]}", exit_code=ExitCode.NOT_STARTED)
    return text
