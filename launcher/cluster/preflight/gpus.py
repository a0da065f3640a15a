"""Which GPUs of a node a job gets, beside whoever else uses that node; and the facts that the plan is made of. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launcher.cluster.preflight.node_facts import GpuProcess, ProbeAnswer, cluster
from launcher.image.labels import ImageFacts
from launcher.inventory.hosts import Host
from launcher.job.container import IMAGE_USER, ContainerFacts
from launcher.job.plan import NodeFacts

_SHOWN = 12  # characters of a uuid


@dataclass(frozen=True, kw_only=True)
class JobThere:
    """A job of ours that runs on a node, or is about to."""

    name: str
    devices: tuple[str, ...] = ()
    """Ids of the GPUs it chose; none where it has all, or none at all."""
    all_gpus: bool = False


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """A job's GPUs on one node."""

    devices: tuple[str, ...] = ()
    """Their indices, in order."""
    all_gpus: bool = False
    """Whether these are all that the node has."""
    asked: bool = False
    """Whether the user chose them by GPUS=, and so left the others to others."""
    problem: str = ""
    """Why the job can't have what was asked for."""


def promised_gpus(host: Host) -> int | None:
    """How many GPUs the node has for us, as the inventory says; None: as many as it shows."""
    return int(host.settings["gpus"]) if "gpus" in host.settings else None


def choose(look: ProbeAnswer, jobs: Iterable[JobThere], asked: str, promised: int | None) -> GpuChoice:
    """Choose the job's GPUs: what the user asked for, else what the inventory promises, else all.

    Args:
        asked: as in the request: `all`, a count, or ids. Of a count, GPUs that nobody holds come first.
        promised: the inventory's `ringmaster_gpus` (`promised_gpus`).
    """
    by_user = asked != "all"
    if asked == "0" or (not by_user and promised == 0):
        return GpuChoice(asked=by_user)
    if look.gpu_problem:
        return GpuChoice(
            problem=f"nvidia-smi fails ({look.gpu_problem.rstrip('.')}): reboot it or reinstall its driver; to train "
            "without GPUs: GPUS=0"
        )
    there = [gpu.index for gpu in look.gpus]
    if not by_user and promised is not None and promised > len(there):
        return GpuChoice(problem=f"{fallen(look, promised)}; to go on without: GPUS=<count>")
    if by_user and not asked.isdigit():
        return _by_ids(look, [word for word in asked.split(",") if word])
    count = int(asked) if by_user else len(there) if promised is None else promised
    if count > len(there):
        return GpuChoice(problem=f"GPUS={asked}: nvidia-smi shows {_shown(look)}")
    busy = _held_by_jobs(look, jobs) | set(_processes(look))
    chosen = sorted(there, key=lambda index: index in busy)[:count]
    return GpuChoice(
        devices=tuple(index for index in there if index in chosen),
        all_gpus=not by_user and 0 < count == len(there),
        asked=by_user,
    )


def _by_ids(look: ProbeAnswer, ids: Sequence[str]) -> GpuChoice:
    known = _indices(look)
    absent = [word for word in ids if word not in known]
    if absent:
        return GpuChoice(problem=f"GPUS: there is no GPU {', '.join(absent)}; nvidia-smi shows {_shown(look)}")
    devices = tuple(known[word] for word in ids)
    if len(set(devices)) < len(devices):
        return GpuChoice(problem=f"GPUS={','.join(ids)}: a GPU stands twice; name each once")
    return GpuChoice(devices=devices, asked=True)


def fallen(look: ProbeAnswer, promised: int) -> str:
    """What to say where the node shows fewer GPUs than the inventory promises."""
    return (
        f"the inventory promises {promised} GPUs (ringmaster_gpus), nvidia-smi shows {_shown(look)}: see dmesg "
        "there, or mend ringmaster_gpus"
    )


def beside(choice: GpuChoice, job: JobThere, look: ProbeAnswer) -> bool:
    """Whether both may run there at once: each chose GPUs of its own."""
    ours, theirs = set(choice.devices), _held_by_jobs(look, [job])
    return choice.asked and not job.all_gpus and bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def strangers(look: ProbeAnswer, choice: GpuChoice, jobs: Iterable[JobThere]) -> list[str]:
    """Who else holds the chosen GPUs, our own jobs left out: a sentence each."""
    ours = _held_by_jobs(look, jobs)
    return [
        f"GPU {index} is held by {', '.join(map(str, found))}"
        for index, found in _processes(look).items()
        if index in choice.devices and index not in ours
    ]


def nameless(look: ProbeAnswer, choice: GpuChoice, jobs: Iterable[JobThere], *, mib: int) -> list[str]:
    """Chosen GPUs of which more than `mib` MiB are in use although no process shows: a sentence each."""
    named = _held_by_jobs(look, jobs) | set(_processes(look))
    return [
        f"{gpu.used_mib} MiB of GPU {gpu.index} are in use, by nothing that nvidia-smi names"
        for gpu in look.gpus
        if gpu.index in choice.devices and gpu.index not in named and (gpu.used_mib or 0) > mib
    ]


def models(look: ProbeAnswer, choice: GpuChoice) -> str:
    """The models of the chosen GPUs, each once."""
    return ", ".join(sorted({gpu.model for gpu in look.gpus if gpu.index in choice.devices}))


def to_facts(host: Host, look: ProbeAnswer, choice: GpuChoice, image: ImageFacts, recorded: str) -> NodeFacts:
    """What the plan is made of; for a node that is ready.

    Args:
        recorded: the image as `make image` wrote it down: the same on all nodes.
    """
    where = cluster(host, look)
    return NodeFacts(
        name=host.name,
        runtime=host.runtime,
        address=str(where.address.ip),
        interface=where.interface,
        gpus=choice.devices,
        cores=look.cores,
        settings=host.settings,
        container=ContainerFacts(
            image=image.id,
            digest=recorded,
            user=f"{look.uid}:{look.gid}" if look.uid else f"{IMAGE_USER}:{IMAGE_USER}",
            all_gpus=choice.all_gpus,
            comm_env=look.comm_env or {},
            infiniband=look.devices,
            memory=look.memory,
            memlock=look.memlock,
            certificates=look.certificates,
            job_dir=look.job_dir.path,
            data_dir=look.data_dir.path,
            cuda=image.cuda,
        ),
    )


def _indices(look: ProbeAnswer) -> dict[str, str]:
    """Each GPU's index by whatever it may be called."""
    return {name: gpu.index for gpu in look.gpus for name in (gpu.index, gpu.uuid)}


def _held_by_jobs(look: ProbeAnswer, jobs: Iterable[JobThere]) -> set[str]:
    known = _indices(look)
    held: set[str] = set()
    for job in jobs:
        held |= set(known.values()) if job.all_gpus else {known[one] for one in job.devices if one in known}
    return held


def _processes(look: ProbeAnswer) -> dict[str, list[GpuProcess]]:
    """The processes on each GPU that has any, by index."""
    known = _indices(look)
    found: dict[str, list[GpuProcess]] = {}
    for process in look.gpu_processes:
        if process.gpu in known:
            found.setdefault(known[process.gpu], []).append(process)
    return found


def _shown(look: ProbeAnswer) -> str:
    """The GPUs that are there: the others' indices move up where one has fallen off the bus, their uuids don't."""
    named = ", ".join(f"{gpu.index} {gpu.uuid[:_SHOWN]}" for gpu in look.gpus)
    return f"{len(look.gpus)} ({named})" if named else "none"
