"""The relay on this node as a unit: started for a delivery, stopped after it, and what it keeps.

Deliveries that begin on this node share its relay. Any other pair would stop each other's: the second is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read, write
from ansible.module_utils.ringmaster.core.manifest import STATE_FOLDER, Manifest
from ansible.module_utils.ringmaster.image import delivery, relay
from ansible.module_utils.ringmaster.image.names import PORT, ROLE, UNIT

FOLDER = STATE_FOLDER + "/registry"
BLOBS = FOLDER + "/blobs"
_PROGRAM = FOLDER + "/relay.py"
_MOVED = BLOBS + "/moved"
_MARK = FOLDER + "/delivery.json"
_START_SECONDS = 15
# The run that started it may vanish: the next run stops it, and without one it ends by itself.
_LIFE_SECONDS = 4 * 3600
_LOOK_SECONDS = 1.0
_LOOKS = 3
"""How often it must be found idle: between two blobs nothing is sent for a moment."""


def claim(own: dict[str, Any], user: str, *, first: bool) -> None:
    """Wait until no other delivery works on this node that this one can't share the relay with.

    Call it with the manifest locked: of two that wait for an interrupted one, the second finds the first one's mark.

    Raises:
        BusyError: one goes on.
    """
    before, deadline = _renewed(), time.monotonic() + delivery.STALE_S
    while not _free(own, user, first=first):
        mark = delivery.mark_of(_MARK)
        if mark and (_renewed() != before or time.monotonic() > deadline):
            raise delivery.refusal(mark)
        time.sleep(_LOOK_SECONDS)


def goes_on(image: str) -> bool:
    """Return whether a delivery of this image goes on here, as a link."""
    mark = delivery.mark_of(_MARK)
    return mark.get("image") == image and delivery.fresh(_MARK, time.time()) and _active()


def renew(own: dict[str, Any]) -> None:
    """Say that a delivery goes on here. Call it before the manifest is locked: another one may hold it in `claim`."""
    delivery.renew(_MARK, own)


def join(own: dict[str, Any], user: str) -> None:
    """Take over the relay of an earlier delivery of the same image, which goes on here as a link."""
    delivery.take(_MARK, own, first=False, user=user)


def start(manifest: Manifest, own: dict[str, Any], user: str, before: Sequence[str] = ()) -> None:
    """Start it as that user, whose SSH reaches the nodes `before` this one in the chain.

    One that runs is stopped, unless it is the first of a chain, too: then that one is used.

    Raises:
        OSError: it doesn't start.
    """
    if not before and _shared(user) and _active() and relay.answers(PORT):
        delivery.take(_MARK, own, first=True, user=user, shared=True)
        return
    stop()
    if relay.answers(PORT):  # it would get the image, and who knows whose it is
        raise OSError(f"another registry has port {PORT}: `ss -ltnp` shows it; stop it, then run this again")
    _prepare(manifest, user)
    delivery.take(_MARK, own, first=not before, user=user)
    run_unit(
        UNIT, f"--uid={user}", "--property=NoNewPrivileges=yes", f"--property=RuntimeMaxSec={_LIFE_SECONDS}",
        "--description=Ringmaster hands the training image on",
        "python3", "-IS", _PROGRAM, FOLDER, str(PORT), *before,
    )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while not (_active() and relay.answers(PORT)):
        if time.monotonic() > deadline or not _active():
            stop()
            raise OSError(
                f"the image's relay doesn't start: `journalctl -u {UNIT}` says why, `ss -ltnp` what has port {PORT}"
            )
        time.sleep(0.1)


def run_unit(unit: str, *words: str) -> None:
    """Run a transient unit: systemd-run's options, then the program.

    Raises:
        OSError: systemd doesn't start it.
    """
    command = ["systemd-run", "--quiet", "--collect", f"--unit={unit}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["systemd-run says nothing"]
        raise OSError(f"{unit} can't be started: {said[-1]}")


def stop() -> None:
    """Stop it, if it runs."""
    subprocess.run(["systemctl", "stop", UNIT], capture_output=True, timeout=60)


def leave(own: dict[str, Any]) -> bool:
    """Stop it, unless another delivery uses it; return whether it is stopped. Whoever stays stops it at its own end."""
    mark = delivery.mark_of(_MARK)
    if mark and mark.get("id") != own["id"]:
        return False
    if mark:
        os.unlink(_MARK)
    if mark.get("shared") and _sending():
        return False
    stop()
    return True


def stop_left() -> bool:
    """Stop what an interrupted delivery has left; return whether nothing runs. One that goes on is left alone."""
    mark = delivery.mark_of(_MARK)
    if mark and (delivery.fresh(_MARK, time.time()) or (mark.get("first") and _sending())):
        return False
    if mark:
        os.unlink(_MARK)
    stop()
    return True


def moved() -> list[str]:
    """Return a line for each node before this one that failed, in this delivery; what failed so again has one."""
    return list(dict.fromkeys((read(_MOVED) or "").splitlines()))


def problem() -> str:
    """Return why the relay has given a blob up, or nothing."""
    return str(relay.state(PORT).get("problem") or "")


def image_of(digest: str, layers: int) -> dict[str, Any]:
    """Return the manifest of the image with so many layers that was pushed under this digest.

    Engines that keep images in containerd push an index, of which links fetch that manifest; another of its entries
    says how the image was built.
    """
    content = content_of(digest)
    for one in content.get("manifests", ()):
        manifest = content_of(one["digest"])
        if len(manifest.get("layers", ())) == layers and (one.get("platform") or {}).get("os") != "unknown":
            return manifest
    return content


def arrived(blobs: Iterable[str]) -> int:
    """Return how many bytes of these have arrived. What was left of another image doesn't count."""
    return sum(map(_size, blobs))


def filled() -> int:
    """Return how many bytes the relay has, of whatever image."""
    total = 0
    for name in os.listdir(BLOBS) if os.path.isdir(BLOBS) else ():
        with contextlib.suppress(FileNotFoundError):  # an upload gets its name when it is whole
            total += os.path.getsize(os.path.join(BLOBS, name))
    return total


def content_of(digest: str) -> dict[str, Any]:
    """Return a manifest that was pushed."""
    content: dict[str, Any] = json.loads(read(_blob(digest)) or "{}")
    return content


def make_room(blobs: Sequence[str]) -> None:
    """Stop the relay, and remove what it has of another image than the one of these layers, if they are known."""
    stop()
    wanted = {name for blob in blobs for name in (blob, f"{blob}.part")} | {"boot"}
    for name in os.listdir(BLOBS) if blobs and os.path.isdir(BLOBS) else ():
        if name not in wanted:
            os.unlink(os.path.join(BLOBS, name))


def keep_only(digest: str = "") -> None:
    """Remove all blobs but those of one image, given by its manifest. The relay must be stopped."""
    wanted = _used(digest) if digest else set()
    for name in os.listdir(BLOBS) if os.path.isdir(BLOBS) else ():
        if name not in wanted:
            os.unlink(os.path.join(BLOBS, name))


def _used(digest: str) -> set[str]:
    content = content_of(digest)
    parts = [content.get("config") or {}, *content.get("layers", ())]
    used = {digest, *(one["digest"] for one in parts if one)}
    names = {one.partition(":")[2] for one in used}
    return names.union(*(_used(one["digest"]) for one in content.get("manifests", ()) if read(_blob(one["digest"]))))


def _blob(digest: str) -> str:
    return os.path.join(BLOBS, digest.partition(":")[2])


def _size(blob: str) -> int:
    path = os.path.join(BLOBS, blob)
    for one in (path, f"{path}.part", path):  # it may become whole between the two
        with contextlib.suppress(FileNotFoundError):
            return os.stat(one).st_size
    return 0


def _shared(user: str) -> bool:
    mark = delivery.mark_of(_MARK)
    return bool(mark.get("first")) and mark.get("user") == user


def _free(own: dict[str, Any], user: str, *, first: bool) -> bool:
    mark = delivery.mark_of(_MARK)
    if not mark or mark.get("id") == own["id"] or not _active() or (first and _shared(user)):
        return True
    return not delivery.fresh(_MARK, time.time()) and not (mark.get("first") and _sending())


def _sending() -> bool:
    for _ in range(_LOOKS):
        if relay.state(PORT).get("sending"):
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _renewed() -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(_MARK).st_mtime_ns
    return 0


def _active() -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", UNIT], timeout=60).returncode == 0


def _prepare(manifest: Manifest, user: str) -> None:
    """Write its program, and make its folder, which only its user can read."""
    account = pwd.getpwnam(user)
    manifest.note(ROLE, "registry", FOLDER)
    os.makedirs(BLOBS, exist_ok=True)
    os.chmod(FOLDER, 0o755)  # noqa: S103  root's umask may keep the relay's user out of it
    if os.path.exists(_MOVED):
        os.unlink(_MOVED)
    os.chown(BLOBS, account.pw_uid, account.pw_gid)
    os.chmod(BLOBS, 0o700)
    write(_PROGRAM, relay.__loader__.get_source(relay.__name__), mode=0o644, uid=0, gid=0)
