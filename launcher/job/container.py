"""A node's container as data: what it is given, and why. Pure.

Everything that a container has is in `Container`, which `plan.json` stores. `arguments` renders it for the Docker SDK,
`command_line` for a shell.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOB_LABEL, NODE_LABEL, GENERATION_LABEL = "ringmaster.job", "ringmaster.node", "ringmaster.generation"

# Paths in the container. The job's folders are mounted below one place, whatever they are called on the node.
JOB = Path("/job")
CODE, RUN, DATA = JOB / "code", JOB / "run", JOB / "data"
OWN_DATA = DATA / "own"
"""Users' own data sets, each in a folder named by its content."""
HOME, CACHE, SECRETS = JOB / "home", JOB / "cache", JOB / "secrets"
# Paths in the image (docker/Dockerfile).
IMAGE_ROOT = Path("/opt/ringmaster")
IMAGE_PYTHON = Path("/opt/venv/bin/python")
IMAGE_RANK_PROGRAM = IMAGE_ROOT / "launcher" / "rank.py"
BROUGHT_RANK_PROGRAM = IMAGE_ROOT / "launcher" / "on_node" / "rank.py"
"""In a foreign image, where our files are mounted at the same place, as they are in this checkout."""
EXIT_FUNCTION = ("ringmaster_exit.py", "ringmaster_exit.pth")
"""In this checkout's requirements/; in an image they lie among Python's packages."""
USER_NAME = "ringmaster"
IMAGE_USER = 10001
"""The image's own user; containers run as this user where we log in as root."""

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_LOG_SIZE, _LOG_FILES = "100m", "5"
_MIB = 1 << 20
_STACK = 64 * _MIB  # as NVIDIA's images ask for


@dataclass(frozen=True, kw_only=True)
class ContainerFacts:
    """What only a container needs to know of its node."""

    image: str
    """What the node's engine calls the image: an ID, or a name with its digest."""
    digest: str
    """The digest that was recorded: the same on all nodes."""
    user: str
    """`uid:gid` that the container runs as."""
    all_gpus: bool = False
    """Whether the job has all of the node's GPUs."""
    comm_env: Mapping[str, str]
    """The content of /etc/ringmaster/comm.env."""
    infiniband: tuple[str, ...] = ()
    """InfiniBand's device files."""
    memory: int
    """The node's, in bytes."""
    memlock: int = -1
    """Bytes that its engine can let a container pin; -1: as many as it wants."""
    certificates: bool = False
    """Whether the node has a bundle of trusted authorities, which may include a company's own."""
    job_dir: str
    data_dir: str
    cuda: str = ""
    """The image's CUDA version."""
    site: str = ""
    """Of a foreign image, the folder of its Python's packages: our files are brought beside it."""
    capabilities: str = ""
    """What a foreign image asks for of a GPU's driver."""


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A folder or file of the node in the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Container:
    """One node's container."""

    name: str
    image: str
    user: str
    gpus: str
    """`all`, device ids with commas, or empty for none."""
    devices: tuple[str, ...]
    memlock: int
    shm_mib: int
    binds: tuple[Bind, ...]
    labels: Mapping[str, str]
    foreign: bool = False
    """Whether `make image` did not build the image: then nothing is known of its entry point."""

    def defaults(self, facts: ContainerFacts, gpus: Sequence[str]) -> dict[str, str]:
        """Return the variables that a container is given unless the site or the user sets them."""
        if gpus and self.foreign and not facts.capabilities:
            return {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}  # as our own image says
        return {}

    def environment(self, facts: ContainerFacts, gpus: Sequence[str], *, checks: bool) -> dict[str, str]:
        """Return the variables that a rank needs only because it is in a container.

        Args:
            checks: whether `rank.py` makes sure of the GPUs; the bundled trainer does so by itself.
        """
        variables = {
            # The user may have no name in the image, and torch's compiler asks for both.
            "HOME": str(HOME),
            "USER": USER_NAME,
            # Kept between jobs, so that nothing is compiled twice.
            "TORCHINDUCTOR_CACHE_DIR": str(CACHE / "inductor"),
            "TRITON_CACHE_DIR": str(CACHE / "triton"),
        }
        if not gpus:
            # Needed where the engine hands GPUs to every container, or the image asks for them.
            variables |= {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        if checks and gpus:
            variables |= {"RINGMASTER_CHECK_GPUS": "1", "RINGMASTER_CUDA": facts.cuda}
        return variables


def _container_name(job: str) -> str:
    """Return a name that engines accept: where they don't accept the job's own, one made from its hash."""
    if re.fullmatch(r"[A-Za-z0-9_.-]+", job):
        return f"ringmaster-{job}"
    return f"ringmaster-{hashlib.sha256(os.fsencode(job)).hexdigest()[:16]}"


def node_folder(container: Container | None, target: Path) -> str:
    """Return where a folder of the container is on its node."""
    assert container is not None
    return next(bind.source for bind in container.binds if bind.target == str(target))


def describe(
    job: str, node: str, facts: ContainerFacts, gpus: Sequence[str], *, code: bool, secrets: bool
) -> Container:
    """Return a job's container on a node.

    Args:
        gpus: the node's device ids.
        code: whether the user's code travels; the bundled trainer is in the image.
        secrets: whether there is a file of secrets.
    """
    folder = Path(facts.job_dir) / job
    binds = [
        Bind(source=str(folder / "run"), target=str(RUN)),
        Bind(source=str(folder / "home"), target=str(HOME)),
        Bind(source=str(Path(facts.job_dir) / ".cache"), target=str(CACHE)),
        Bind(source=facts.data_dir, target=str(DATA)),
        # Named by content and shared: what one job changed in it would change another job's data.
        Bind(source=f"{facts.data_dir}/own", target=str(OWN_DATA), read_only=True),
    ]
    if code:
        binds.append(Bind(source=str(folder / "code"), target=str(CODE)))
    if secrets:
        binds.append(Bind(source=str(folder / "secrets"), target=str(SECRETS), read_only=True))
    if facts.site:
        binds.append(Bind(source=str(folder / "ours"), target=str(IMAGE_ROOT), read_only=True))
        binds += [
            Bind(source=str(folder / "ours" / "requirements" / name), target=f"{facts.site}/{name}", read_only=True)
            for name in EXIT_FUNCTION
        ]
    if facts.certificates:
        binds.append(Bind(source=_CERTIFICATES, target=_CERTIFICATES, read_only=True))
    return Container(
        name=_container_name(job),
        image=facts.image,
        user=facts.user,
        gpus="" if not gpus else "all" if facts.all_gpus else ",".join(gpus),
        devices=facts.infiniband,
        memlock=facts.memlock,
        shm_mib=facts.memory // 2 // _MIB,
        binds=tuple(binds),
        labels={JOB_LABEL: job, NODE_LABEL: node, GENERATION_LABEL: "0"},
        foreign=bool(facts.site),
    )


def arguments(container: Container, argv: Sequence[str], working_folder: str, environment: Mapping[str, str]) -> Any:
    """Render a container for `DockerClient.containers.create`, every argument with its reason."""
    from docker.types import DeviceRequest, LogConfig, Mount, Ulimit  # 0.2 s, which jobs on this machine don't need

    selection: dict[str, Any] = {"count": -1} if container.gpus == "all" else {"device_ids": container.gpus.split(",")}
    gpus = [DeviceRequest(capabilities=[["gpu"]], **selection)] if container.gpus else []
    # An unknown image may start anything, and check its health by anything; its PID 1 must hand signals on.
    own_start = {"entrypoint": [argv[0]], "init": True, "healthcheck": {"test": ["NONE"]}} if container.foreign else {}
    return {
        **own_start,
        "image": container.image,  # by digest or ID: a tag may have been moved
        "command": list(argv[1:] if container.foreign else argv),
        "name": container.name,  # a second container of the same job can't be made
        "labels": dict(container.labels),  # status, logs and stop find it by these
        "working_dir": working_folder,
        "environment": dict(environment),
        "user": container.user,  # what it writes belongs to whoever started it, and not to root
        "device_requests": gpus,  # what was planned, and no other
        "network_mode": "host",  # ranks of other nodes connect to ports that torch chooses
        "ulimits": [
            # NCCL and RDMA pin memory.
            Ulimit(name="memlock", soft=container.memlock, hard=container.memlock),
            Ulimit(name="stack", soft=_STACK, hard=_STACK),
        ],
        # Data workers hand over batches in shared memory. The container has its own, which ends with it: with ipc=host,
        # what a killed job leaves in the node's /dev/shm would stay there until the next boot.
        "shm_size": f"{container.shm_mib}m",
        "devices": [f"{path}:{path}:rwm" for path in container.devices],  # InfiniBand
        "mounts": [
            # A mount, not a volume: a missing source is an error, where a volume would create it as root.
            Mount(bind.target, bind.source, type="bind", read_only=bind.read_only)
            for bind in container.binds
        ],
        "log_config": LogConfig(type="json-file", config={"max-size": _LOG_SIZE, "max-file": _LOG_FILES}),
        "cap_drop": ["ALL"],  # nothing in it needs a privilege
        "security_opt": ["no-new-privileges"],
        # Where the engine maps users (userns-remap), the job's folders would belong to nobody in the container, and the
        # node's network would be refused.
        "userns_mode": "host",
    }


def command_line(container: Container, argv: Sequence[str], working_folder: str, environment: Mapping[str, str]) -> str:
    """Render the same container as a `docker run` for a shell."""
    words = ["docker", "run", "--detach", "--name", container.name]
    words += [f"--label={key}={value}" for key, value in container.labels.items()]
    words += [f"--gpus={_quoted_ids(container.gpus)}"] if container.gpus else []
    words += [
        "--network=host",
        f"--ulimit=memlock={container.memlock}:{container.memlock}",
        f"--ulimit=stack={_STACK}:{_STACK}",
    ]
    words += [f"--shm-size={container.shm_mib}m", *(f"--device={path}" for path in container.devices)]
    words += [
        f"--mount=type=bind,source={bind.source},target={bind.target}" + (",readonly" if bind.read_only else "")
        for bind in container.binds
    ]
    words += ["--log-driver=json-file", f"--log-opt=max-size={_LOG_SIZE}", f"--log-opt=max-file={_LOG_FILES}"]
    words += ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--userns=host", f"--user={container.user}"]
    words += [f"--workdir={working_folder}", *(f"--env={key}={value}" for key, value in environment.items())]
    if container.foreign:
        words += ["--init", "--no-healthcheck", f"--entrypoint={argv[0]}"]
    return shlex.join([*words, container.image, *(argv[1:] if container.foreign else argv)])


def _quoted_ids(gpus: str) -> str:
    """Return device ids as docker's command line wants them: several in quotes, as commas separate its settings."""
    if gpus == "all":
        return gpus
    return f'"device={gpus}"' if "," in gpus else f"device={gpus}"
