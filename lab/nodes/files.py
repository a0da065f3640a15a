"""The files that a node gets before its first boot. Pure: made from its spec and from the facts of this machine."""

from dataclasses import dataclass

from lab.host.facts import Host, extra_certificates, via_gateway
from lab.image.recipe import USER
from lab.nodes.spec import NodeSpec

USER_ID = 1000
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_OLD_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfjXpDu0QeGmBBbcdn1Ak1LTBbVMRqyBtcNjcYbCYU1 somebody@laptop"
_OLD_BASHRC = """\
# ~/.bashrc of a previous user
case $- in
    *i*) ;;
      *) return;;
esac
HISTCONTROL=ignoreboth
alias ll='ls -alF'
export EDITOR=nano"""  # and no newline at its end


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to place in a node."""

    content: str
    mode: int = 0o644
    owner: int = 0


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """A node's place in the lab's networks."""

    address: str
    gateway: str
    subnet: str
    second_address: str = ""
    second_gateway: str = ""


def settings(spec: NodeSpec, wiring: Wiring) -> str:
    """Return what `start-node` reads at every boot, as shell assignments."""
    values = {
        "ADDRESS": wiring.address,
        "GATEWAY": wiring.gateway,
        "INTERFACE": spec.interface,
        "MTU": spec.mtu,
        "SSH_PORT": spec.ssh_port,
        "LOOPBACK_NAME": int(spec.loopback_name),
        "SECOND_ADDRESS": wiring.second_address,
        "SECOND_GATEWAY": wiring.second_gateway,
        "GPU": int(spec.gpus > 0),
        "TOOLKIT": int(spec.toolkit),
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def first_boot(spec: NodeSpec, wiring: Wiring, host: Host, public_key: str, known_certificates: str) -> dict[str, File]:
    """Return every file to place, by its path in the node."""
    home = f"/home/{USER}"
    # An older key first, and no newline after the operator's key: appending to this file takes a look at its end.
    keys = f"{_OLD_KEY}\n{public_key.strip()}" if spec.old_files else public_key.strip() + "\n"
    placed = {f"{home}/.ssh/authorized_keys": File(content=keys, mode=0o600, owner=USER_ID)}
    if spec.old_files:
        placed[f"{home}/.bashrc"] = File(content=_OLD_BASHRC, owner=USER_ID)
    if spec.ssh_port != 22:
        placed["/etc/ssh/sshd_config.d/10-port.conf"] = File(content=f"Port {spec.ssh_port}\n")
    if spec.max_startups:
        placed["/etc/ssh/sshd_config.d/10-startups.conf"] = File(content=f"MaxStartups {spec.max_startups}\n")
    if spec.behind:  # this machine is the gateway; the other nodes, the jump host too, come from their own addresses
        refused = f"Match Address {wiring.gateway}\n    DenyUsers *\n"
        placed["/etc/ssh/sshd_config.d/20-behind.conf"] = File(content=refused)
    return placed | _of_this_machine(spec, wiring, host, known_certificates)


def _of_this_machine(spec: NodeSpec, wiring: Wiring, host: Host, known_certificates: str) -> dict[str, File]:
    placed = {}
    if host.apt_sources:
        placed["/etc/apt/sources.list"] = File(content=host.apt_sources)
        placed["/etc/apt/sources.list.d/debian.sources"] = File(content="")  # a pulled image's own
    if host.apt_options:
        placed["/etc/apt/apt.conf.d/90network"] = File(content=via_gateway(host.apt_options, wiring.gateway))
    extra = extra_certificates(host.certificates, known_certificates)
    for number, certificate in enumerate(extra):
        placed[f"/usr/local/share/ca-certificates/network-{number}.crt"] = File(content=certificate)
    if extra:
        # As update-ca-certificates would write it; if that runs later, it finds the files above.
        placed[BUNDLE] = File(content=known_certificates.rstrip("\n") + "\n" + "".join(extra))
    variables = environment(host, wiring)
    if variables:
        words = " ".join(f'"{key}={value.replace("%", "%%")}"' for key, value in variables.items())
        placed["/etc/systemd/system.conf.d/90-proxy.conf"] = File(content=f"[Manager]\nDefaultEnvironment={words}\n")
    login = {**variables, **clock_environment(spec.clock)}
    placed["/etc/environment"] = File(content=environment_file(login))
    return placed


def environment(host: Host, wiring: Wiring) -> dict[str, str]:
    """Return the proxies in both spellings; the lab's own network is never reached through one."""
    variables = {}
    for name, value in host.proxies:
        if name == "no_proxy":
            continue
        variables[name] = variables[name.upper()] = via_gateway(value, wiring.gateway)
    if variables:
        excepted = ",".join([*filter(None, [dict(host.proxies).get("no_proxy", "")]), "localhost", wiring.subnet])
        variables["no_proxy"] = variables["NO_PROXY"] = excepted
    return variables


def clock_environment(seconds: int) -> dict[str, str]:
    """Return variables that show a login another time; the kernel's clock is the whole machine's.

    PAM sets them, also for sudo.
    """
    if not seconds:
        return {}
    return {
        "LD_PRELOAD": "/usr/lib/ringmaster-lab/libfaketime.so",
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def environment_file(variables: dict[str, str]) -> str:
    """Return the lines of /etc/environment for these variables."""
    return "".join(f'{key}="{value}"\n' for key, value in variables.items())
