"""Whether the chosen nodes are ready for a job: everything that speaks against it, on all of them at once. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.cluster.preflight import image as node_image
from launcher.cluster.preflight.gpus import (
    GpuChoice,
    JobThere,
    beside,
    fallen,
    models,
    nameless,
    promised_gpus,
    strangers,
)
from launcher.cluster.preflight.node_facts import Cluster, ProbeAnswer, cluster, shared_network
from launcher.cluster.preflight.requirements import Wanted, lacking
from launcher.image import labels
from launcher.image.labels import ImageFacts
from launcher.inventory.hosts import Host
from launcher.job.rendezvous import first_free

_GB = 10**9
_LEAST_FREE, _LITTLE_FREE = 1 * _GB, 5 * _GB
_NAMELESS_MIB = 1024
_SKEW_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node that a job is to run on, with all that is known of it."""

    host: Host
    look: ProbeAnswer
    choice: GpuChoice
    image: ImageFacts | None
    """The recorded image as this node's engine has it; None where it has it not."""
    jobs: tuple[JobThere, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the job needs of its nodes."""

    image: str
    """The image that is recorded; empty where none is."""
    trainer: str
    """The hash of this checkout's own part of an image."""
    packages: Wanted | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that isn't as it should be, and how to mend it."""

    node: str
    """Empty: it is about all of them."""
    what: str
    exit_code: ExitCode = ExitCode.NOT_STARTED

    def __str__(self) -> str:
        return f"{self.node}: {self.what}" if self.node else self.what


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found: problems keep the job from starting, warnings are said."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def error(self) -> RingmasterError:
        """The refusal for its problems; where there are several, the table (`rows`) has been shown."""
        code = self.problems[0].exit_code
        if any(problem.exit_code != code for problem in self.problems):
            code = ExitCode.NOT_STARTED
        if len(self.problems) == 1:
            return RingmasterError(str(self.problems[0]), exit_code=code)
        who = ", ".join(dict.fromkeys(problem.node or "all nodes" for problem in self.problems))
        return RingmasterError(f"{who}: not ready (see the table); nothing was started", exit_code=code)


def judge(candidates: Sequence[Candidate], asked: Asked) -> Report:
    """Look for everything that keeps the job from starting, or is worth a word."""
    images = [one.image for one in candidates if one.image]
    image = node_image.usual(images) if images else None
    problems = list(_of_all(candidates, asked, image))
    warnings = list(_differences(candidates))
    for one in candidates:
        problems += [Problem(node=one.host.name, what=what) for what in _of_node(one, asked, image)]
        warnings += [Problem(node=one.host.name, what=what) for what in _worth_a_word(one)]
    if image and labels.TRAINER in image.labels and image.labels[labels.TRAINER] != asked.trainer:
        what = "the image has another trainer than this checkout: `make image` brings it up to date, in seconds"
        warnings.append(Problem(node="", what=what))
    return Report(problems=tuple(problems), warnings=tuple(warnings))


def rows(candidates: Sequence[Candidate], report: Report) -> list[Row]:
    """The table: every problem has a line, and every node at least one."""
    made = [Row(name="all", address="", state="refused", why=one.what) for one in report.problems if not one.node]
    for candidate in candidates:
        name, address = candidate.host.name, candidate.host.address
        mine = [one.what for one in report.problems if one.node == name]
        made += [Row(name=name, address=address, state="refused", why=what) for what in mine]
        made += [] if mine else [Row(name=name, address=address, state="ok")]
    return made


def free_port(listening: Collection[int], head: str) -> int:
    """A port for the rendezvous at which nothing listens on the head, as at the next. Raises as `first_free` does."""
    return first_free(lambda port: not {port, port + 1} & set(listening), head)


def _of_all(candidates: Sequence[Candidate], asked: Asked, image: ImageFacts | None) -> Iterator[Problem]:
    if not asked.image:
        what = "no image is recorded for these nodes: `make image` builds one and brings it to them"
        yield Problem(node="", what=what, exit_code=ExitCode.USAGE)
    if image:
        said = node_image.made_by_others(image) or (lacking(asked.packages, image) if asked.packages else "")
        if said:
            yield Problem(node="", what=said)
    reached = {one.host.name: where for one in candidates if (where := _where(one))}
    for (name, mine), (other, theirs) in combinations(reached.items(), 2):
        if mine.address.ip == theirs.address.ip:
            what = (
                f"{name} and {other} both say that the others reach them at {mine.address.ip} ({mine.interface}, "
                f"{theirs.interface}): set ringmaster_interface or ringmaster_cluster_ip to their own"
            )
            yield Problem(node="", what=what, exit_code=ExitCode.USAGE)


def _of_node(one: Candidate, asked: Asked, image: ImageFacts | None) -> Iterator[str]:
    yield from _unprovisioned(one)
    for job in one.jobs:
        if not beside(one.choice, job, one.look):
            held = " on all GPUs" if job.all_gpus else f" on GPU {', '.join(job.devices)}" if job.devices else ""
            yield (
                f"job {job.name} runs there{held}: `make status` shows it, `make stop NAME={job.name}` ends it; two "
                "jobs share a node only where each chose GPUs of its own (GPUS=)"
            )
    if one.choice.problem:
        yield one.choice.problem
    for held in strangers(one.look, one.choice, one.jobs):
        yield f"{held}: end it, or choose other GPUs (GPUS=)"
    if asked.image and one.image is None:
        yield node_image.absent(one.look, asked.image)
    if one.image and image:
        if not node_image.same(one.image, image):
            yield node_image.other_one(one.image, image)
        yield from node_image.unfit(one.image, one.look, uses_gpus=bool(one.choice.devices))


def _unprovisioned(one: Candidate) -> Iterator[str]:
    look = one.look
    folders = (look.job_dir, look.data_dir)
    missing = ["/etc/ringmaster/comm.env"] if look.comm_env is None else []
    missing += [folder.path or "a folder of jobs" for folder in folders if not folder.there]
    if missing:
        yield f"it is not provisioned: `make provision` (not there: {', '.join(missing)})"
    for folder in folders:
        if folder.there and not folder.writable:
            yield f"{folder.path} can't be written by {look.user}: `make provision TAGS=job_folders` mends that"
    if look.job_dir.free is not None and look.job_dir.free < _LEAST_FREE:
        yield (
            f"{look.job_dir.path} has {look.job_dir.free / _GB:.1f} GB free, a job needs {_LEAST_FREE // _GB}: remove "
            "what nobody needs there, or set ringmaster_job_dir to a larger disk"
        )
    if look.comm_env is not None:
        try:
            if cluster(one.host, look).address.is_loopback:
                yield "no other node can reach its loopback: mend ringmaster_interface or ringmaster_cluster_ip"
        except ValueError as error:
            yield str(error)


def _worth_a_word(one: Candidate) -> Iterator[str]:
    free = one.look.job_dir.free
    if free is not None and _LEAST_FREE <= free < _LITTLE_FREE:
        yield f"{one.look.job_dir.path} has only {free / _GB:.1f} GB free"
    promised = promised_gpus(one.host)
    if one.choice.devices and promised is not None and promised > len(one.look.gpus):
        yield fallen(one.look, promised)
    for held in nameless(one.look, one.choice, one.jobs, mib=_NAMELESS_MIB):
        yield f"{held}: training may run out of memory"
    for part, why in one.look.troubles.items():
        yield f"its {part.replace('_', ' ')} could not be found out: {why}"


def _differences(candidates: Sequence[Candidate]) -> Iterator[Problem]:
    """What differs between nodes. Unequal counts of GPUs are the plan's own note."""
    by_clock = sorted(candidates, key=lambda one: one.look.clock_s)
    skew = by_clock[-1].look.clock_s - by_clock[0].look.clock_s
    if skew > _SKEW_S:
        yield Problem(
            node=by_clock[-1].host.name,
            what=f"its clock is {skew:.0f} s ahead of {by_clock[0].host.name}'s: times in logs don't fit together; "
            "start time synchronization (systemd-timesyncd, chrony)",
        )
    found = {one.host.name: models(one.look, one.choice) for one in candidates if one.choice.devices}
    if len(set(found.values())) > 1:
        yield Problem(node="", what=f"GPU models differ ({_each(found)}): each step waits for the slowest")
    fewest, most = (choose(candidates, key=lambda one: one.look.cores) for choose in (min, max))
    if fewest.look.cores < most.look.cores:
        shown = _each({one.host.name: str(one.look.cores) for one in candidates})
        slower = most.look.cores / fewest.look.cores
        what = "what the CPU does for a step" if any(one.choice.devices for one in candidates) else "each step"
        yield Problem(
            node="",
            what=f"cores differ ({shown}): {what} may take up to {slower:.1f} times as long on {fewest.host.name}",
        )
    yield from _different_networks(candidates)


def _different_networks(candidates: Sequence[Candidate]) -> Iterator[Problem]:
    reached = [(one, where) for one in candidates if (where := _where(one))]
    mtus = {one.host.name: str(where.mtu) for one, where in reached}
    if len(set(mtus.values())) > 1:
        yield Problem(node="", what=f"MTUs differ ({_each(mtus)}): large packets may get lost; set the same on all")
    for (one, mine), (other, theirs) in combinations(reached, 2):
        shared = shared_network(one.look, other.look)
        if shared and mine.address.network != theirs.address.network:
            yield Problem(
                node="",
                what=f"{one.host.name} ({mine.address}) and {other.host.name} ({theirs.address}) are to talk from one "
                f"network to another, though they share one ({', '.join(dict.fromkeys(shared))}): is "
                "ringmaster_interface or ringmaster_cluster_ip right?",
            )


def _where(one: Candidate) -> Cluster | None:
    try:
        return cluster(one.host, one.look)
    except ValueError:
        return None


def _each(found: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in found.items())
