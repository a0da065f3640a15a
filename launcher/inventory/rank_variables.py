"""Which variables a site (`ringmaster_comm_env`) or a user (`ENV`) may give to all ranks: names, values, interfaces.

Pure. The playbooks' preflight uses it too.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

NCCL_DEBUG = "NCCL_DEBUG"
NCCL_LEVELS = ("VERSION", "WARN", "INFO", "TRACE", "ABORT")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OURS = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|(RUN|DATA|CHECKPOINT)_DIR"
    r"|HOME|USER|PYTHONUNBUFFERED|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|(RINGMASTER|TORCHELASTIC)_.*"
)
"""What a job sets for its ranks and nobody else may; test_plan.py holds this against a plan."""
_CHOSEN = re.compile(r"(CUDA|NVIDIA)_VISIBLE_DEVICES")
_SECRET_WORD = re.compile(
    r"((API|ACCESS|AUTH|PRIVATE|SECRET)?KEYS?|(?!TIK).*TOKEN|SECRETS?|.*(PASSWORDS?|PASSWD|PASSPHRASE))\d*"
)
"""A word in the name of a secret. Tokens in the plural are something to count (MAX_TOKENS), tiktoken is a package."""
_LAST_WORD = re.compile(r"(.+_PWD|(.+_)?PASS|.*KEY)_?\d*")
"""A name that ends as one of a secret: the word means other things elsewhere (PASS_RATE), and PWD alone is a folder.

Some that end in KEY are none (MONKEY): naming those in SECRETS costs less than a secret in a plan.
"""
_CAMELS_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_GLOO = frozenset({
    "GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "GLOO_LOG_LEVEL", "GLOO_DISABLE_CONNECTION_RETRIES",
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "GLOO_ENABLE_STORE_V2_API",
})  # fmt: skip
"""All that torch's Gloo reads (2.15)."""
_GLOO_MORE = "GLOO_DEVICE_TRANSPORT_"
"""Begins the names of what a torch with Gloo over TLS reads."""
_KNOWN = _GLOO | frozenset({
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", NCCL_DEBUG, "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_TIMEOUT",
    "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD", "NCCL_NVLS_ENABLE", "NCCL_OOB_NET_IFNAME", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS",
    "OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "TORCH_DIST_USE_NCCL2", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES",
})  # fmt: skip
"""What people set. NCCL knows hundreds more, and each version others, so a name is refused only as a slip of these."""
_INTERFACE_WORD = re.compile(r"NCCL_(.*_)?(IF|IFACE|IFNAME|INTERFACE)S?")
_BY_PATTERN = frozenset({"NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"})
_BY_NAME = frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})


def name_problem(name: str) -> str:
    """Return why nobody may give ranks a variable of this name, with a remedy; empty if anybody may."""
    if not _NAME.fullmatch(name):
        return f"'{name}' can't name a variable: use letters, digits and _"
    if _CHOSEN.fullmatch(name):
        return f"{name} is set for each job from its GPUs: choose them with GPUS"
    if _OURS.fullmatch(name):
        return f"{name} is set for each job by Ringmaster or torchrun: leave it out"
    meant = _meant(name)
    return f"nothing reads {name}: did you mean {meant}?" if meant else ""


def _meant(name: str) -> str:
    """Return the known name that this one is a slip of, if it is one."""
    if name in _KNOWN or name.startswith(_GLOO_MORE):
        return ""
    if name.upper().startswith("GLOO_"):
        return difflib.get_close_matches(name.upper(), sorted(_GLOO), n=1, cutoff=0)[0]
    if _INTERFACE_WORD.fullmatch(name.upper()):
        return "NCCL_SOCKET_IFNAME"
    return next((known for known in sorted(_KNOWN) if _is_slip(name.upper(), known)), "")


def _is_slip(typed: str, meant: str) -> bool:
    """Return whether two words differ in their case alone, in one letter, or in the order of two neighbours."""
    start = _same_letters(typed, meant)
    typed, meant = typed[start:], meant[start:]
    end = _same_letters(typed[::-1], meant[::-1])
    typed, meant = typed[: len(typed) - end], meant[: len(meant) - end]
    return max(len(typed), len(meant)) <= 1 or (len(typed) == 2 and typed == meant[::-1])


def _same_letters(one: str, other: str) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is likely to hold a secret."""
    name = _CAMELS_HUMP.sub("_", name).upper()
    return any(map(_SECRET_WORD.fullmatch, name.split("_"))) or bool(_LAST_WORD.fullmatch(name))


def value_problem(name: str, value: str) -> str:
    """Return why a variable can't have this value, with a remedy; empty if it can."""
    if name == NCCL_DEBUG and value.upper() not in NCCL_LEVELS:
        return f"{NCCL_DEBUG}={value}: must be one of {', '.join(NCCL_LEVELS)}"
    return ""


def sources_of(
    shell: Mapping[str, str], settings: Mapping[str, Any], job: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """Return who sets variables of a node's ranks, in the order in which the later one wins, as a plan does it."""
    site = {str(name): str(value) for name, value in (settings.get("comm_env") or {}).items()}
    return {"your shell": shell, "ringmaster_comm_env": site, "ENV": job}


def nccl_finds_interface(settings: Mapping[str, Any], *, gpus: bool) -> bool:
    """Return whether a node's ranks may use NCCL, and the site doesn't tell it which interface to use.

    Args:
        gpus: whether the ranks have GPUs there.
    """
    told = "NCCL_SOCKET_IFNAME" in (settings.get("comm_env") or {})
    return gpus and settings.get("backend") != "gloo" and not told


def interface_problems(sources: Mapping[str, Mapping[str, str]], interfaces: Collection[str]) -> list[str]:
    """Return what is wrong with each variable that names a network interface which a node doesn't have.

    Args:
        sources: the variables by who has set them; of two with one name, the later counts.
        interfaces: the names of those that the node has.
    """
    setters = {name: (value, setter) for setter, variables in sources.items() for name, value in variables.items()}
    problems = []
    for name, (value, setter) in setters.items():
        missing = ""
        if name in _BY_NAME:
            missing = ", ".join(one for one in value.split(",") if one and one not in interfaces)
        elif name in _BY_PATTERN and not _matches(value, interfaces):
            missing = value
        if missing:
            there = ", ".join(interfaces) or "none"
            what = f"no interface here fits {missing}, there is {there}"
            problems.append(f"{name}={value} (from {setter}): {what}: name one of these, or leave it out")
    return problems


def _matches(pattern: str, interfaces: Collection[str]) -> bool:
    """Return whether NCCL finds an interface: prefixes with commas between; `^` means all others, `=` whole names."""
    others = pattern.startswith("^")
    pattern = pattern.removeprefix("^")
    whole = pattern.startswith("=")
    words = [one for one in pattern.removeprefix("=").split(",") if one]
    found = [one for one in interfaces if any(one == word if whole else one.startswith(word) for word in words)]
    return not words or (len(found) < len(interfaces) if others else bool(found))
