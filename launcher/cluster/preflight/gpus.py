"""Which GPUs of a node a job gets, given who else uses that node. Pure.

Another way to choose them (by free memory, by model, …) goes into `choose_gpus`. The other functions compare a choice
with what nvidia-smi shows; the checks use them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launcher.cluster.preflight.probe_answer import GpuProcess, ProbeAnswer
from launcher.inventory.hosts import Host

_SHOWN = 12  # characters of a uuid


@dataclass(frozen=True, kw_only=True)
class JobOnNode:
    """A job of ours that runs on a node, or is about to."""

    name: str
    devices: tuple[str, ...] = ()
    """Ids of the GPUs it chose; empty if it has all of them, or none."""
    all_gpus: bool = False


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """A job's GPUs on one node."""

    devices: tuple[str, ...] = ()
    """Their indices, in order."""
    all_gpus: bool = False
    """Whether these are all that the node has."""
    by_user: bool = False
    """Whether the user chose them with GPUS=, and so left the rest to other jobs."""
    problem: str = ""
    """Why the job can't have the GPUs that it asks for; empty if it can."""


def promised_gpus(host: Host) -> int | None:
    """Return how many GPUs the inventory promises on the node; None: as many as nvidia-smi shows."""
    return int(host.settings["gpus"]) if "gpus" in host.settings else None


def choose_gpus(answer: ProbeAnswer, jobs: Iterable[JobOnNode], request: str, promised: int | None) -> GpuChoice:
    """Choose the job's GPUs: what the user asked for, else what the inventory promises, else all.

    Args:
        request: the user's GPUS=: `all`, a count, or ids. For a count, GPUs that nobody holds come first.
        promised: the inventory's `ringmaster_gpus` (`promised_gpus`).
    """
    by_user = request != "all"
    if request == "0" or (not by_user and promised == 0):
        return GpuChoice(by_user=by_user)
    if answer.gpu_problem:
        return GpuChoice(
            problem=f"nvidia-smi fails ({answer.gpu_problem.rstrip('.')}): reboot the node or reinstall its "
            "driver; to train without GPUs: GPUS=0"
        )
    there = [gpu.index for gpu in answer.gpus]
    if not by_user and promised is not None and promised > len(there):
        return GpuChoice(problem=f"{gpus_missing(answer, promised)}; to go on without: GPUS=<count>")
    if by_user and not request.isdigit():
        return _by_ids(answer, [word for word in request.split(",") if word])
    count = int(request) if by_user else len(there) if promised is None else promised
    if count > len(there):
        return GpuChoice(problem=f"GPUS={request}: nvidia-smi shows {_shown(answer)}")
    busy = _held_by_jobs(answer, jobs) | set(_processes(answer))
    chosen = sorted(there, key=lambda index: index in busy)[:count]
    return GpuChoice(
        devices=tuple(index for index in there if index in chosen),
        all_gpus=not by_user and 0 < count == len(there),
        by_user=by_user,
    )


def _by_ids(answer: ProbeAnswer, ids: Sequence[str]) -> GpuChoice:
    known = _indices(answer)
    absent = [word for word in ids if word not in known]
    if absent:
        return GpuChoice(problem=f"GPUS: there is no GPU {', '.join(absent)}; nvidia-smi shows {_shown(answer)}")
    devices = tuple(known[word] for word in ids)
    if len(set(devices)) < len(devices):
        return GpuChoice(problem=f"GPUS={','.join(ids)}: a GPU is named twice; name each once")
    return GpuChoice(devices=devices, by_user=True)


def gpus_missing(answer: ProbeAnswer, promised: int) -> str:
    """Return what to say if the node shows fewer GPUs than the inventory promises."""
    return (
        f"the inventory promises {promised} GPUs (ringmaster_gpus), nvidia-smi shows {_shown(answer)}: see dmesg "
        "there, or correct ringmaster_gpus"
    )


def can_share(choice: GpuChoice, job: JobOnNode, answer: ProbeAnswer) -> bool:
    """Return whether both may run there at once: each must have chosen GPUs of its own."""
    ours, theirs = set(choice.devices), _held_by_jobs(answer, [job])
    return choice.by_user and not job.all_gpus and bool(ours) and bool(theirs) and ours.isdisjoint(theirs)


def foreign_processes(answer: ProbeAnswer, choice: GpuChoice, jobs: Iterable[JobOnNode]) -> list[str]:
    """Return who holds the chosen GPUs besides our own jobs: a sentence for each GPU."""
    ours = _held_by_jobs(answer, jobs)
    return [
        f"GPU {index} is held by {', '.join(map(str, processes))}"
        for index, processes in _processes(answer).items()
        if index in choice.devices and index not in ours
    ]


def unclaimed_memory(answer: ProbeAnswer, choice: GpuChoice, jobs: Iterable[JobOnNode], *, mib: int) -> list[str]:
    """Return chosen GPUs with more than `mib` MiB in use although nvidia-smi names no process: a sentence for each."""
    named = _held_by_jobs(answer, jobs) | set(_processes(answer))
    return [
        f"{gpu.used_mib} MiB of GPU {gpu.index} are in use, by no process that nvidia-smi names"
        for gpu in answer.gpus
        if gpu.index in choice.devices and gpu.index not in named and (gpu.used_mib or 0) > mib
    ]


def gpu_models(answer: ProbeAnswer, choice: GpuChoice) -> str:
    """Return the models of the chosen GPUs, each once."""
    return ", ".join(sorted({gpu.model for gpu in answer.gpus if gpu.index in choice.devices}))


def _indices(answer: ProbeAnswer) -> dict[str, str]:
    """Each GPU's index, by every name that it has."""
    return {name: gpu.index for gpu in answer.gpus for name in (gpu.index, gpu.uuid)}


def _held_by_jobs(answer: ProbeAnswer, jobs: Iterable[JobOnNode]) -> set[str]:
    known = _indices(answer)
    held: set[str] = set()
    for job in jobs:
        held |= set(known.values()) if job.all_gpus else {known[one] for one in job.devices if one in known}
    return held


def _processes(answer: ProbeAnswer) -> dict[str, list[GpuProcess]]:
    """The processes on each GPU that has any, by index."""
    known = _indices(answer)
    processes: dict[str, list[GpuProcess]] = {}
    for process in answer.gpu_processes:
        if process.gpu in known:
            processes.setdefault(known[process.gpu], []).append(process)
    return processes


def _shown(answer: ProbeAnswer) -> str:
    """The GPUs that are there. When one falls off the bus, the indices of those after it move up; uuids stay."""
    named = ", ".join(f"{gpu.index} {gpu.uuid[:_SHOWN]}" for gpu in answer.gpus)
    return f"{len(answer.gpus)} ({named})" if named else "none"
