"""The checks before a job starts. Pure.

To add one, write a function with the signature of `Check` that yields findings, and put it into `CHECKS`. A finding
says what is wrong and how to fix it: `candidate.problem(…)` refuses the job, `candidate.warning(…)` is only printed,
and `Finding(what=…)` concerns no single node. All checks always run, so that the user sees everything at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from launcher.base.errors import ExitCode
from launcher.cluster.preflight.findings import Candidate, Finding, JobNeeds, Report
from launcher.cluster.preflight.foreign_image import unfit
from launcher.cluster.preflight.gpus import (
    can_share,
    foreign_processes,
    gpu_models,
    gpus_missing,
    promised_gpus,
    unclaimed_memory,
)
from launcher.cluster.preflight.image import (
    image_absent,
    image_differs,
    image_unfit,
    same_image,
    usual_image,
)
from launcher.cluster.preflight.module import missing_module
from launcher.cluster.preflight.network import (
    ClusterAddress,
    cluster_address,
    public_addresses,
    shared_network,
)
from launcher.cluster.preflight.requirements import missing_packages
from launcher.image import labels
from launcher.image.labels import ImageFacts
from launcher.inventory.rank_variables import interface_problems, nccl_finds_interface, sources_of
from launcher.job.rank_python import lacks_for_the_trainer

_GB = 10**9
_LEAST_FREE, _LITTLE_FREE = 1 * _GB, 5 * _GB
_UNCLAIMED_MIB = 1024
_SKEW_S = 5.0
_NAMED = 5
"""How many nodes are named; the rest is a number."""

Check = Callable[[Sequence[Candidate], JobNeeds], Iterator[Finding]]


def run_checks(candidates: Sequence[Candidate], needs: JobNeeds) -> Report:
    """Run every check; findings about all nodes come first, then those of each node in turn."""
    place = {"": -1} | {candidate.host.name: number for number, candidate in enumerate(candidates)}
    findings = [finding for check in CHECKS for finding in check(candidates, needs)]
    findings.sort(key=lambda finding: place[finding.node])  # stable: of one node they stay in the order of the checks
    return Report(
        problems=tuple(finding for finding in findings if finding.refuses),
        warnings=tuple(finding for finding in findings if not finding.refuses),
    )


def image_is_usable(candidates: Sequence[Candidate], needs: JobNeeds) -> Iterator[Finding]:
    """Require an image that can run the job, with the packages, or the module, that the program needs.

    An image with another trainer than this checkout's is worth a warning.
    """
    if not needs.image:
        what = "no image is recorded for these nodes: `make image` builds one and brings it to them"
        yield Finding(what=what, exit_code=ExitCode.USAGE, lacks_image=True)
    image = _usual_image(candidates)
    if image is None:
        return
    lacks = []
    if image.contents:
        lacks = list(unfit(image.contents, bundled=needs.bundled))
    elif needs.bundled and image.labels.get(labels.CHOSEN_TORCH) and image.packages:
        way = "name another (ringmaster_image)" if needs.named else "`make image` without TORCH, or with a newer one"
        lacks = [f"{what}: {way}" for what in lacks_for_the_trainer(image.packages)]
    yield from (Finding(what=f"the image {needs.image} {what}") for what in lacks)
    if lacks:
        return
    named = needs.image if needs.named else ""
    if needs.requirements and (what := missing_packages(needs.requirements, image, named)):
        yield Finding(what=what)
    if needs.module:
        what, certain = missing_module(needs.module, image, named)
        yield from [Finding(what=what, refuses=certain)] if what else []
    if not image.foreign and image.labels[labels.TRAINER] != needs.trainer:
        way = "name a newer one (ringmaster_image)" if named else "`make image` brings it up to date, in seconds"
        what = f"the image has another trainer than this checkout: {way}"
        yield Finding(what=what, refuses=False, lacks_image=not named)


def addresses_are_distinct(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require an address of its own for each node."""
    for (one, mine), (other, theirs) in combinations(_addresses(candidates), 2):
        if mine.address.ip == theirs.address.ip:
            what = (
                f"{one.host.name} and {other.host.name} both say that the others reach them at {mine.address.ip} "
                f"({mine.interface}, {theirs.interface}): set ringmaster_interface or ringmaster_cluster_ip for "
                "each of them"
            )
            yield Finding(what=what, exit_code=ExitCode.USAGE)


def node_is_provisioned(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require what `make provision` creates, and that the SSH user may write to the folders."""
    for one in candidates:
        folders = (one.answer.job_dir, one.answer.data_dir)
        missing = ["/etc/ringmaster/comm.env"] if one.answer.comm_env is None else []
        missing += [folder.path or "a folder of jobs" for folder in folders if not folder.there]
        if missing:
            yield one.problem(f"it is not provisioned: `make provision` (missing: {', '.join(missing)})")
        for folder in folders:
            if folder.there and not folder.writable:
                yield one.problem(
                    f"{one.answer.user} can't write to {folder.path}: `make provision TAGS=job_folders` fixes that"
                )


def engine_is_the_systems(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require an engine that gives ranks the node's own network and devices."""
    yield from (one.problem(one.engine_problem) for one in candidates if one.engine_problem)


def disk_has_room(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require room on the disk of the jobs' folder."""
    for one in candidates:
        path, free = one.answer.job_dir.path, one.answer.job_dir.free
        if free is not None and free < _LEAST_FREE:
            yield one.problem(
                f"{path} has {free / _GB:.1f} GB free, a job needs {_LEAST_FREE // _GB}: remove what nobody needs "
                "there, or set ringmaster_job_dir to a larger disk"
            )
        elif free is not None and free < _LITTLE_FREE:
            yield one.warning(f"{path} has only {free / _GB:.1f} GB free")


def node_is_reachable(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require the interface and the address where the other nodes reach this one."""
    for one in candidates:
        if one.answer.comm_env is None:
            continue  # `node_is_provisioned` reports that
        try:
            where = cluster_address(one.host, one.answer)
            if where.nccl_problem and nccl_finds_interface(one.host.settings, gpus=bool(one.choice.devices)):
                yield one.problem(where.nccl_problem)
            if where.address.is_loopback:
                yield one.problem(
                    "no other node can reach its loopback address: correct ringmaster_interface or "
                    "ringmaster_cluster_ip"
                )
        except ValueError as error:
            yield one.problem(str(error))


def named_interfaces_are_there(candidates: Sequence[Candidate], needs: JobNeeds) -> Iterator[Finding]:
    """Require the interfaces that variables name: Gloo dies without them, and NCCL finds no way to the others."""
    for one in candidates:
        sources = sources_of(needs.environment, one.host.settings, needs.variables)
        names = [interface.name for interface in one.answer.interfaces]
        for what in interface_problems(sources, names) if names else []:
            yield replace(one.problem(what), exit_code=ExitCode.USAGE)


def no_other_job_is_in_the_way(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require that no other job of ours runs there, unless both jobs chose GPUs of their own."""
    for one in candidates:
        for job in one.jobs:
            if can_share(one.choice, job, one.answer):
                continue
            held = " on all GPUs" if job.all_gpus else f" on GPU {', '.join(job.devices)}" if job.devices else ""
            yield one.problem(
                f"job {job.name} runs there{held}: `make status` shows it, `make stop NAME={job.name}` ends it; two "
                "jobs share a node only if each chose GPUs of its own (GPUS=)"
            )


def name_is_free(candidates: Sequence[Candidate], needs: JobNeeds) -> Iterator[Finding]:
    """Require that no job of that name has a folder there; `job_folder.prepare` makes sure once more."""
    for one in candidates:
        if one.answer.job_there:
            what = f"there is a job {needs.name} on this node already; choose another NAME"
            yield replace(one.problem(what), exit_code=ExitCode.USAGE)


def gpus_are_there_and_free(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Require the GPUs that the job asks for, without anybody else's processes on them."""
    for one in candidates:
        if one.choice.problem:
            yield one.problem(one.choice.problem)
        for held in foreign_processes(one.answer, one.choice, one.jobs):
            yield one.problem(f"{held}: end it, or choose other GPUs (GPUS=)")
        promised = promised_gpus(one.host)
        if one.choice.devices and promised is not None and promised > len(one.answer.gpus):
            yield one.warning(gpus_missing(one.answer, promised))
        for used in unclaimed_memory(one.answer, one.choice, one.jobs, mib=_UNCLAIMED_MIB):
            yield one.warning(f"{used}: training may run out of memory")


def image_fits_the_node(candidates: Sequence[Candidate], needs: JobNeeds) -> Iterator[Finding]:
    """Require the image that most nodes have, and a CPU, a driver and GPUs that can run it."""
    usual = _usual_image(candidates)
    for one in candidates:
        if one.image is None or usual is None:
            if needs.image:
                yield one.problem(image_absent(one.answer, needs.image), lacks_image=True)
            continue
        if not same_image(one.image, usual):
            yield one.problem(image_differs(one.image, usual))
        for what in image_unfit(one.image, one.answer, one.choice.devices, named=needs.named):
            yield one.problem(what)


def everything_could_be_looked_at(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Warn of each thing that the probe could not find out."""
    for one in candidates:
        for part, why in one.answer.troubles.items():
            yield one.warning(f"the probe could not find out its {part.replace('_', ' ')}: {why}")


def clocks_agree(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Warn if the nodes' clocks differ."""
    by_clock = sorted(candidates, key=lambda one: one.answer.clock_s)
    slowest, fastest = by_clock[0], by_clock[-1]
    skew = fastest.answer.clock_s - slowest.answer.clock_s
    if skew > _SKEW_S:
        yield fastest.warning(
            f"its clock is {skew:.0f} s ahead of {slowest.host.name}'s: times in logs don't fit together; start time "
            "synchronization (systemd-timesyncd, chrony)"
        )


def nodes_are_equally_fast(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Warn if GPU models or cores differ. (The plan itself notes unequal counts of GPUs.)"""
    models = {one.host.name: gpu_models(one.answer, one.choice) for one in candidates if one.choice.devices}
    if len(set(models.values())) > 1:
        yield Finding(what=f"GPU models differ ({_each(models)}): each step waits for the slowest", refuses=False)
    fewest, most = (pick(candidates, key=lambda one: one.answer.cores) for pick in (min, max))
    if fewest.answer.cores < most.answer.cores:
        cores = _each({one.host.name: str(one.answer.cores) for one in candidates})
        slower = most.answer.cores / fewest.answer.cores
        part = "what the CPU does for a step" if models else "each step"
        what = f"cores differ ({cores}): {part} may take up to {slower:.1f} times as long on {fewest.host.name}"
        yield Finding(what=what, refuses=False)


def network_is_the_shared_one(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Warn if the nodes don't use a network that they share, or if their MTUs differ."""
    reached = _addresses(candidates)
    mtus = {one.host.name: str(where.mtu) for one, where in reached}
    if len(set(mtus.values())) > 1:
        what = f"MTUs differ ({_each(mtus)}): large packets may get lost; set the same on all"
        yield Finding(what=what, refuses=False)
    for (one, mine), (other, theirs) in combinations(reached, 2):
        shared = shared_network(one.answer, other.answer)
        if shared and mine.address.network != theirs.address.network:
            what = (
                f"{one.host.name} ({mine.address}) and {other.host.name} ({theirs.address}) would talk from one "
                f"network to another, though they share one ({', '.join(dict.fromkeys(shared))}): is "
                "ringmaster_interface or ringmaster_cluster_ip right?"
            )
            yield Finding(what=what, refuses=False)


def nobody_else_can_connect(candidates: Sequence[Candidate], _: JobNeeds) -> Iterator[Finding]:
    """Warn of nodes with a public address that no firewall guards."""
    reached = {one.host.name: public_addresses(one.answer) for one in candidates if one.answer.firewall == ""}
    exposed = [f"{name} ({', '.join(addresses)})" for name, addresses in reached.items() if addresses]
    if exposed:
        more = f" and {len(exposed) - _NAMED} more nodes" if len(exposed) > _NAMED else ""
        what = (
            f"the whole internet reaches {', '.join(exposed[:_NAMED])}{more}, and no firewall runs there: torch "
            "accepts whoever connects, and loads the objects that it is sent. Set `ringmaster_firewall: cluster_only` "
            "and `make provision TAGS=firewall`, unless something in front of the machines filters"
        )
        yield Finding(what=what, refuses=False)


CHECKS: tuple[Check, ...] = (
    image_is_usable,
    addresses_are_distinct,
    node_is_provisioned,
    engine_is_the_systems,
    disk_has_room,
    node_is_reachable,
    named_interfaces_are_there,
    no_other_job_is_in_the_way,
    name_is_free,
    gpus_are_there_and_free,
    image_fits_the_node,
    everything_could_be_looked_at,
    clocks_agree,
    nodes_are_equally_fast,
    network_is_the_shared_one,
    nobody_else_can_connect,
)
"""In the order in which a node's findings are shown."""


def _usual_image(candidates: Sequence[Candidate]) -> ImageFacts | None:
    """The image that most nodes have; None if no node has one."""
    images = [one.image for one in candidates if one.image]
    return usual_image(images) if images else None


def _addresses(candidates: Sequence[Candidate]) -> list[tuple[Candidate, ClusterAddress]]:
    """The nodes that have an address for the others; `node_is_reachable` reports the rest."""
    found = []
    for one in candidates:
        try:
            found.append((one, cluster_address(one.host, one.answer)))
        except ValueError:
            continue
    return found


def _each(values: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in values.items())
