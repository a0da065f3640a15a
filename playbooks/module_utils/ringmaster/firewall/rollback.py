"""The way back: ufw's old files are stored on the node, which puts them back by itself unless the change is confirmed.

A timer does that after some seconds. A unit that only the next boot reads does it where the node reboots before. Both
run the same script. Whichever moves the folder `pending` first, the script or the confirmation, decides.
"""

from __future__ import annotations

import json
import os
import shutil

from ansible.module_utils.ringmaster.core.disk import flush, read
from ansible.module_utils.ringmaster.core.manifest import STATE_FOLDER
from ansible.module_utils.ringmaster.core.program import finished
from ansible.module_utils.ringmaster.firewall.rules import PATHS
from ansible.module_utils.ringmaster.system.look import connection

FOLDER = STATE_FOLDER + "/firewall"
PENDING = FOLDER + "/pending"
_SCRIPT = FOLDER + "/rollback"
_CONNECTION = PENDING + "/connection"
_UNIT = "ringmaster-firewall-rollback"
_BOOT_UNIT = f"/etc/systemd/system/{_UNIT}-at-boot.service"
_BOOT_LINK = f"/etc/systemd/system/multi-user.target.wants/{_UNIT}-at-boot.service"

SCRIPT = f"""\
#!/bin/sh
# Puts ufw back as it was before Ringmaster changed it: run by a timer, or at the next boot, unless a new connection has
# proven before that the operator still comes in.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin

here={FOLDER}

main() {{
    mv -T $here/pending $here/restoring 2>/dev/null || [ -d $here/restoring ] || exit 0
    for file in {" ".join(PATHS)}; do
        [ -e "$here/restoring$file" ] || continue
        cp -a "$here/restoring$file" "$file.ringmaster"
        mv -f "$file.ringmaster" "$file"
    done
    if [ "${{1:-}}" != boot ]; then # at boot, ufw reads the files after this
        # Others may hold the kernel's tables for a moment.
        restart_ufw || {{ sleep 2 && restart_ufw; }} || {{ sleep 5 && restart_ufw; }}
    fi
    rm -f {_BOOT_LINK} {_BOOT_UNIT}
    rm -rf $here
}}

restart_ufw() {{
    case $(sed -n 's/^ENABLED=//p' /etc/ufw/ufw.conf | tail -n 1) in
        *[yY][eE][sS]*) /lib/ufw/ufw-init force-reload ;;
        *) /lib/ufw/ufw-init force-stop ;;
    esac
}}

main "$@"
exit
"""

BOOT = f"""\
# Stands here only while a change of the firewall by Ringmaster is not confirmed.
[Unit]
Description=Put ufw back as it was before an unconfirmed change
DefaultDependencies=no
RequiresMountsFor={FOLDER}
After=local-fs.target
Before=ufw.service network-pre.target

[Service]
Type=oneshot
ExecStart=/bin/sh {_SCRIPT} boot
"""


def is_pending() -> bool:
    """Return whether a change awaits its confirmation, or a rollback was interrupted."""
    return os.path.isdir(FOLDER)


def arm(seconds: int) -> None:
    """Store ufw's files as they are, and the connection that a proof must not come by; start the timer.

    All of it is on the disk before the timer starts: whatever cuts the power from then on, the way back is there.
    """
    part = PENDING + ".part"
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(part, mode=0o700)
    os.chmod(FOLDER, 0o700)
    for path in filter(os.path.exists, PATHS):
        _copy(path, part + path)
    for path, text in ((_SCRIPT, SCRIPT), (part + "/connection", _live()), (_BOOT_UNIT, BOOT)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        flush(path)
    os.rename(part, PENDING)
    os.makedirs(os.path.dirname(_BOOT_LINK), exist_ok=True)
    if not os.path.lexists(_BOOT_LINK):
        os.symlink(_BOOT_UNIT, _BOOT_LINK)
    flush(
        FOLDER, *(folder for folder, _, _ in os.walk(PENDING)), os.path.dirname(_BOOT_UNIT), os.path.dirname(_BOOT_LINK)
    )
    _stop_timer()
    _run("systemd-run", "--quiet", "--collect", f"--unit={_UNIT}", f"--on-active={seconds}",
         "--timer-property=AccuracySec=1s", "/bin/sh", _SCRIPT)  # fmt: skip


def is_proof() -> bool:
    """Return whether this connection is another one than the change's, or none because SSH isn't used."""
    return connection() is None or _live() != read(_CONNECTION)


def disarm() -> bool:
    """Keep the change; return False where the node has taken it back already.

    The changed files are on the disk before the way back is gone, and that it is gone is on the disk before this
    returns: after a power cut the node boots with the firewall that we said it has.
    """
    changed = list(filter(os.path.exists, PATHS))
    flush(*changed, *sorted(set(map(os.path.dirname, changed))))
    try:
        os.replace(PENDING, FOLDER + "/confirmed")
    except OSError:
        return False
    flush(FOLDER)
    _stop_timer()
    _forget_boot_unit()
    shutil.rmtree(FOLDER)
    flush(os.path.dirname(FOLDER))
    return True


def roll_back() -> None:
    """Take an unconfirmed change back now.

    Raises:
        subprocess.CalledProcessError: ufw can't be put back.
    """
    if os.path.isdir(PENDING) or os.path.isdir(FOLDER + "/restoring"):
        _run("/bin/sh", _SCRIPT)
    _stop_timer()
    _forget_boot_unit()
    shutil.rmtree(FOLDER, ignore_errors=True)


def _forget_boot_unit() -> None:
    for path in (_BOOT_LINK, _BOOT_UNIT):
        if os.path.lexists(path):
            os.unlink(path)
            flush(os.path.dirname(path))


def _live() -> str:
    """Return both ends of the live SSH connection, which distinguish it from others."""
    return json.dumps(connection())


def _copy(path: str, target: str) -> None:
    status = os.stat(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(path, target)
    os.chown(target, status.st_uid, status.st_gid)
    flush(target)


def _stop_timer() -> None:
    # It fails where no timer runs, which does no harm.
    finished(["systemctl", "stop", f"{_UNIT}.timer"])


def _run(*words: str) -> None:
    finished(list(words)).check_returncode()
