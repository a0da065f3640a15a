"""What a node image is made from. Pure data: equal recipes make equal images."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lab.host.facts import Host
from launcher.base.paths import ROOT

NODE_FILES = ROOT / "lab" / "node_files"
_BUILDER = Path(__file__).with_name("build.py")
USER = "ops"
# The packages of a rented machine, and those that the lab's own start needs (e2fsprogs, libfaketime).
BASE = (
    "systemd", "systemd-sysv", "libpam-systemd", "dbus", "udev", "openssh-server", "sudo", "ufw", "iptables", "python3",
    "ca-certificates", "curl", "iproute2", "iputils-ping", "procps", "kmod", "less", "nano", "e2fsprogs", "libfaketime",
)  # fmt: skip
_EXTRA = {"bare": (), "engine": ("docker.io", "pigz"), "registry": ("docker-registry", "openssl")}
_FALLBACK = ("debian", "bookworm")
SETUP = f"""
set -eu
useradd --create-home --shell /bin/bash {USER}
# What a login has by /etc/environment (proxies) sudo has too, as on Ubuntu.
printf '{USER} ALL=(ALL) NOPASSWD:ALL\\nDefaults env_file=/etc/environment\\n' >/etc/sudoers.d/90-{USER}
chmod 0440 /etc/sudoers.d/90-{USER}
# Each node makes its own at its first boot; container images also forbid that packages start services.
rm -f /etc/ssh/ssh_host_* /usr/sbin/policy-rc.d /etc/machine-id
: >/etc/machine-id
# Without its clock_nanosleep (nobody finds it under another name): with a real monotonic clock that function fails,
# and with it every sleep of a Python of 3.11 or newer.
LC_ALL=C sed s/clock_nanosleep/clock_nanosleeq/g "$(find /usr/lib -name libfaketime.so.1 | head -n 1)" \\
    >/usr/lib/ringmaster-lab/libfaketime.so
# Without hardware these only cost time at the boot.
systemctl mask --quiet systemd-udevd.service systemd-udev-trigger.service e2scrub_reap.service apt-daily.timer \\
    apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer
"""
CLEAN = "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/*.log /var/log/apt"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image: `bare`, or one with more on top of it (`engine`, `registry`)."""

    kind: str
    distribution: str
    codename: str

    @property
    def packages(self) -> tuple[str, ...]:
        """Every package of the distribution in it."""
        return (*BASE, *_EXTRA[self.kind])

    @property
    def digest(self) -> str:
        """A hash of everything that the image is made from."""
        parts = [self.kind, self.distribution, self.codename, *self.packages, SETUP, CLEAN]
        parts += [f"{path.name}:{path.read_text()}" for path in [_BUILDER, *sorted(NODE_FILES.iterdir())]]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def recipe(kind: str, host: Host) -> Recipe:
    """Return the recipe for nodes that run this machine's distribution, as it surely reaches its packages; else Debian.

    Args:
        kind: `bare`, `engine` or `registry`.
    """
    distribution, codename = (host.distribution, host.codename) if host.distribution else _FALLBACK
    return Recipe(kind=kind, distribution=distribution, codename=codename)
