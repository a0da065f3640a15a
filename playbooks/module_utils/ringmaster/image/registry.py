"""The registry on the node that hands its image on: a transient unit, on loopback only, while it is needed."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import time
import urllib.request
from typing import Any

from ansible.module_utils.ringmaster.core.disk import write
from ansible.module_utils.ringmaster.core.manifest import STATE_FOLDER, Manifest
from ansible.module_utils.ringmaster.core.probe import ESTABLISHED, socket_tables, sockets
from ansible.module_utils.ringmaster.image.names import PORT, REPOSITORY, ROLE, UNIT
from ansible.module_utils.ringmaster.image.program import provide
from ansible.module_utils.ringmaster.image.tunnel import answers

FOLDER = STATE_FOLDER + "/registry"
_CONFIG, _DATA = FOLDER + "/config.yml", FOLDER + "/data"
_NAME = REPOSITORY.partition("/")[2]
_TAGS = f"{_DATA}/docker/registry/v2/repositories/{_NAME}/_manifests/tags"
_START_SECONDS = 15
# The run that started it may vanish: the next run stops it, and without one it ends by itself.
_LIFE_SECONDS = 4 * 3600
_SETTINGS = {
    "version": "0.1",
    "log": {"level": "warn", "accesslog": {"disabled": True}},
    "storage": {"filesystem": {"rootdirectory": _DATA}, "delete": {"enabled": True}},
    "http": {"addr": f"127.0.0.1:{PORT}"},
}
_KINDS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


def start(manifest: Manifest, user: str) -> None:
    """Start it as that user, unless it runs.

    Raises:
        OSError: it doesn't answer, or something else has its port.
        ValueError: its program can't be fetched.
    """
    if _active():
        return
    if answers():
        raise OSError(f"another registry has port {PORT} of this node's loopback: stop it (`ss -ltnp` shows it)")
    program = _prepare(manifest, user)
    subprocess.run(
        [
            "systemd-run", "--quiet", "--collect", f"--unit={UNIT}", f"--uid={user}",
            "--property=NoNewPrivileges=yes", f"--property=RuntimeMaxSec={_LIFE_SECONDS}",
            "--description=Ringmaster hands the training image on", program, "serve", _CONFIG,
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while not answers():
        if time.monotonic() > deadline:
            stop()
            raise OSError(f"the registry doesn't start: `journalctl -u {UNIT}` on this node says why")
        time.sleep(0.1)


def stop() -> None:
    """Stop it, if it runs."""
    subprocess.run(["systemctl", "stop", UNIT], capture_output=True, timeout=60)


def in_use() -> bool:
    """Return whether someone is connected. Once our delivery has ended, that is another delivery."""
    return any(row.port == PORT and row.state == ESTABLISHED for row in sockets(socket_tables()))


def manifest_of(tag: str) -> tuple[str, dict[str, Any]]:
    """Return a pushed image's manifest: its digest and its content."""
    wanted = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v2/{_NAME}/manifests/{tag}", headers={"Accept": ", ".join(_KINDS)}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(wanted, timeout=30) as answer:
        content = answer.read()
    return f"sha256:{hashlib.sha256(content).hexdigest()}", json.loads(content)


def keep_only(tag: str, user: str) -> None:
    """Forget all other images. The registry must be stopped: nobody may write what the collection removes."""
    old = [folder for folder in glob.glob(f"{_TAGS}/*") if os.path.basename(folder) != tag]
    if not old:
        return
    for folder in old:
        shutil.rmtree(folder)
    words = ["runuser", "-u", user, "--", provide(FOLDER), "garbage-collect", "--delete-untagged", _CONFIG]
    subprocess.run(words, check=True, capture_output=True, timeout=600)


def _active() -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", UNIT], timeout=60).returncode == 0


def _prepare(manifest: Manifest, user: str) -> str:
    """Return the program's path; write its settings, and make its folder, which only its user can read."""
    account = pwd.getpwnam(user)
    manifest.note(ROLE, "registry", FOLDER)
    os.makedirs(_DATA, exist_ok=True)
    write(_CONFIG, json.dumps(_SETTINGS), mode=0o644, uid=0, gid=0)  # JSON is YAML too
    os.chown(_DATA, account.pw_uid, account.pw_gid)
    os.chmod(_DATA, 0o700)
    return provide(FOLDER)
