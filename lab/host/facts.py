"""What this machine hands to the lab's nodes and builds when they start: certificates, proxies, archives for apt.

None of it is baked into an image: an image is the same wherever it was built.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_APT_OPTIONS = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Force", "Acquire::Retries")
_DISTRIBUTIONS = ("Debian", "Ubuntu")


@dataclass(frozen=True, kw_only=True)
class Host:
    """This machine, as far as its nodes need to know about it."""

    distribution: str = ""
    """`debian` or `ubuntu`; empty for another system."""
    codename: str = ""
    certificates: str = ""
    """The bundle that this machine trusts, in PEM; it includes a company's own authority."""
    proxies: tuple[tuple[str, str], ...] = ()
    apt_sources: str = ""
    """The distribution's own archives as this machine reaches them, in sources.list lines."""
    apt_options: str = ""
    """How this machine's apt reaches them (proxies, time-outs, checks), in apt.conf lines."""
    mtu: int = 1500
    """The MTU of the interface with the default route."""


def read() -> Host:
    """Return the facts about this machine."""
    distribution, codename = _release()
    known = distribution in {name.lower() for name in _DISTRIBUTIONS} and bool(shutil.which("apt-get"))
    return Host(
        distribution=distribution if known else "",
        codename=codename if known else "",
        certificates=_certificates(),
        proxies=proxies(os.environ),
        apt_sources=_apt_sources() if known else "",
        apt_options=options(_output(["apt-config", "dump", "Acquire"])) if known else "",
        mtu=_mtu(),
    )


_INDEX_TARGETS = [
    "apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages",
]  # fmt: skip


def _apt_sources() -> str:
    archives = sources(_output(_INDEX_TARGETS))
    if not archives and os.geteuid() == 0:
        _output(["apt-get", "-qq", "update"])  # apt knows an archive's origin only once it has its index
        archives = sources(_output(_INDEX_TARGETS))
    return archives


def proxies(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the proxy variables in lower case; programs read one or the other spelling, and most the lower one."""
    values = ((name, environment.get(name) or environment.get(name.upper(), "")) for name in _PROXIES)
    return tuple((name, value) for name, value in values if value)


def sources(targets: str) -> str:
    """Turn apt's list of the files that it fetches into lines for sources.list: the distribution's own archives only.

    Other archives (a vendor's) need keys that a node doesn't have, and a rented machine doesn't have them either.
    """
    archives: dict[tuple[str, str], list[str]] = {}
    for line in targets.splitlines():
        origin, uri, release, component = (line.split("|") + [""] * 4)[:4]
        if origin in _DISTRIBUTIONS and urlsplit(uri).scheme in {"http", "https"}:
            components = archives.setdefault((uri, release), [])
            if component not in components:
                components.append(component)
    return "".join(f"deb {uri} {release} {' '.join(names)}\n" for (uri, release), names in archives.items())


def options(dump: str) -> str:
    """Return those of apt's settings that say how archives are reached, without paths to this machine's files."""
    lines = []
    for line in dump.splitlines():
        key, value = [*line.split(" ", 1), ""][:2]
        is_path = re.match(r'"/', value) or "Auto-Detect" in key or "CaInfo" in key
        if key.startswith(_APT_OPTIONS) and value not in {'"";', ""} and not is_path:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def via_gateway(value: str, gateway: str) -> str:
    """Replace this machine's loopback by the lab network's gateway, where nodes reach a proxy if it listens there."""
    return re.sub(r"(?<=//)((?:[^@/\s]+@)?)(?:localhost|127\.0\.0\.\d+)(?=[:/]|$)", rf"\g<1>{gateway}", value)


def extra_certificates(bundle: str, known: str) -> tuple[str, ...]:
    """Return the certificates of `bundle` that `known` lacks: a company's own, not the public authorities'."""
    present = {_body(block) for block in _blocks(known)}
    return tuple(block + "\n" for block in _blocks(bundle) if _body(block) not in present)


def _blocks(bundle: str) -> list[str]:
    return re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", bundle, re.DOTALL)


def _body(block: str) -> str:
    return "".join(block.split())


def _certificates() -> str:
    candidates = [os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES]
    bundle = next((Path(name) for name in candidates if name and Path(name).is_file()), None)
    return bundle.read_text(encoding="utf-8", errors="replace") if bundle else ""


def _release() -> tuple[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "", ""
    values = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    return values.get("ID", ""), values.get("VERSION_CODENAME", "")


def _mtu() -> int:
    """Return the MTU of the interface with the default route: larger frames of a node would be lost there."""
    route = re.search(r" dev (\S+)", _output(["ip", "route", "show", "default"]))
    try:
        return int(Path(f"/sys/class/net/{route[1]}/mtu").read_text()) if route else 1500
    except OSError:
        return 1500


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
