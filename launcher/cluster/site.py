"""The machines of an inventory as the site of a job: its nodes are containers, started over SSH."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.cluster import job_folders, resume
from launcher.cluster.engine import containers
from launcher.cluster.job import ClusterJob, planned_job_dir
from launcher.cluster.preflight import findings, foreign_image, probe_answer
from launcher.cluster.preflight.checks import run_checks
from launcher.cluster.preflight.findings import Candidate, JobNeeds, Report
from launcher.cluster.preflight.foreign_image import look_inside
from launcher.cluster.preflight.gpus import JobOnNode, choose_gpus, promised_gpus
from launcher.cluster.preflight.image import image_names
from launcher.cluster.preflight.module import wanted_of_image
from launcher.cluster.preflight.network import free_port
from launcher.cluster.preflight.plan_input import container_user, to_node_facts
from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.cluster.preflight.requirements import find_requirements
from launcher.cluster.transfer.checkpoint import Home, Place, bring_checkpoint, tree_of
from launcher.cluster.transfer.code import list_code
from launcher.cluster.transfer.data import list_data
from launcher.cluster.transfer.file_tree import FileTree, describe, hashed_entry, in_order
from launcher.cluster.transfer.upload import Holder, upload_code, upload_data
from launcher.image import labels
from launcher.image.content import our_files, trainer_hash
from launcher.image.cuda import fitting_cuda
from launcher.image.labels import ImageFacts
from launcher.image.supply import Remedy, Supply
from launcher.inventory.hosts import Host
from launcher.job import container
from launcher.job.checkpoint import Checkpoint
from launcher.job.facts import NodeFacts, Places
from launcher.job.folder import Earlier, JobFolder
from launcher.job.plan import Plan, make_plan
from launcher.job.request import Request
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all, open_all, revived

_LOOK_S = 300.0
"""For a foreign image to say what is in it: it imports torch, from a disk that has not read it yet."""
IMAGE_OWNER = (container.IMAGE_USER, container.IMAGE_USER)


@dataclass(frozen=True, kw_only=True)
class _Observed:
    """What was found on one node: its probe's answer, its image, its jobs."""

    answer: ProbeAnswer
    image: ImageFacts | None
    jobs: tuple[JobOnNode, ...]
    engine_problem: str


@dataclass(frozen=True, kw_only=True)
class _Source:
    """What the job continues from."""

    checkpoint: Checkpoint
    host: Host | None
    """The first node of the earlier job, if it was asked."""
    address: str
    """Its address for the other nodes."""


class ClusterSite:
    """Nodes that are machines of their own."""

    versions = ""

    def __init__(
        self,
        hosts: Sequence[Host],
        remotes: Mapping[str, Remote],
        pins: Path,
        *,
        image: str,
        say: Callable[[str], None],
        everyone: Callable[[], Sequence[Host]] = tuple,
        supply: Supply | None = None,
    ) -> None:
        """Args:
        hosts: the chosen nodes, in order.
        pins: the inventory's known_hosts.
        image: the recorded image; empty if none is recorded.
        say: prints a line for the user; called from several threads.
        everyone: reads all hosts of the inventory: an earlier job may have run on others.
        supply: brings the image to nodes that lack it; None: a job on such nodes is refused.
        """
        self._supply = supply
        self._remedy: Remedy | None = None
        """How the planned job's nodes come to the image that the plan takes for granted."""
        self._hosts = hosts
        self._everyone = everyone
        self._remotes = dict(remotes)
        self._pins = pins
        self._image = image
        self._say = say
        self._code: FileTree | None = None
        self._ours: FileTree | None = None
        """What a foreign image lacks of ours."""
        self._data: FileTree | None = None
        self._source: _Source | None = None
        self._clock_s = 0.0
        """Seconds that the head's clock is ahead of ours."""
        self._token = uuid.uuid4().hex

    def newest(self, job: Earlier) -> Checkpoint:
        """Return the newest valid checkpoint of an earlier job, on its nodes or here.

        Raises:
            RingmasterError: the job still runs, its first node can't be asked, or there is no valid checkpoint.
        """
        head = resume.find_head(job, self._hosts)
        if job.head and head is None:  # LIMIT says where the new job runs, not where the earlier one ran
            head = resume.find_head(job, self._everyone())
        checkpoint = resume.newest(job, head, self._reach, self._say)
        self._source = _Source(checkpoint=checkpoint, host=head, address=job.address)
        return checkpoint

    @contextmanager
    def _reach(self, host: Host) -> Iterator[Remote]:
        """Yield the connection to a node; one that is not among the job's nodes is closed afterwards."""
        if host.name in self._remotes:
            yield self._remotes[host.name]
            return
        opened, failed = open_all([host], self._pins)
        if failed:
            raise RingmasterError(failed[host.name].why, exit_code=ExitCode.NOT_STARTED)
        try:
            yield opened[host.name]
        finally:
            opened[host.name].close()

    def plan(self, folder: JobFolder, request: Request, *, resumes: bool) -> Plan:
        """Look at all nodes at once and plan the job.

        Where nodes lack an image that can be brought, the plan takes it for granted, as far as it is known, and its
        notes say what would be done: `equip` does it. So whatever needs no image refuses the job before.

        Raises:
            RingmasterError: a check refuses the job; if there are several problems, a table of all nodes was shown.
        """
        candidates, report, reference = self._examined(folder.name, request)
        if report.problems:
            if len(report.problems) > 1:
                node_table.show(findings.rows(candidates, report))
            raise report.error
        head = candidates[0]
        assert head.image is not None
        self._clock_s = head.answer.clock_s
        self._list_files(request)
        facts = [_facts(candidate, reference) for candidate in candidates]
        self.versions = _versions(head.image, reference)
        port = free_port(head.answer.listening, head.host.name)
        plan = make_plan(folder.name, request, facts, self._places(request, head.image), port, resumes=resumes)
        remedies = self._remedy.notes if self._remedy else ()
        notes = (*remedies, *plan.notes, *(str(warning) for warning in report.warnings), *self._file_notes())
        return replace(plan, notes=notes, code=self._code.hash if self._code else None)

    def _examined(self, name: str, request: Request) -> tuple[list[Candidate], Report, str]:
        """Look at all nodes, and run every check; return also the image that the job would run.

        Where only the image refuses the job and can be brought, the checks run once more as if it were there.
        """
        observed = on_all(self._remotes, lambda remote: self._look_at(remote, name))
        candidates = self._looked_into([_candidate(host, observed[host.name], request) for host in self._hosts])
        needs = JobNeeds(
            name=name,
            image=self._image,
            named=bool(self._hosts[0].settings.get("image")),
            trainer=trainer_hash(),
            bundled=request.program.bundled,
            requirements=find_requirements(request.program),
            module=wanted_of_image(request.program),
            environment=request.environment,
            variables=request.variables,
        )
        report = run_checks(candidates, needs)
        self._remedy = self._find_remedy(candidates) if report.lacks_image else None
        if self._remedy:
            candidates = [replace(one, image=self._remedy.images[one.host.name]) for one in candidates]
            needs = replace(needs, image=self._remedy.reference)
            report = run_checks(candidates, needs)
        return candidates, report, needs.image

    def _looked_into(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates with what is in their image, if that is a foreign one: the first that has it is asked.

        Raises:
            RingmasterError: the image can't be run.
        """
        one = next((one for one in candidates if one.image and one.image.foreign), None)
        if one is None or one.image is None or not one.answer.job_dir.writable:
            return candidates
        command = look_inside(one.image, one.answer.job_dir.path, container_user(one.answer))
        done = self._remotes[one.host.name].run(command, limit_s=_LOOK_S)
        try:
            contents = foreign_image.parse(done.text)
        except ValueError as error:
            why = done.why if done.code else error
            raise RingmasterError(
                f"{one.host.name}: the image {self._image} can't be asked what is in it ({why}): does it have /bin/sh?",
                exit_code=ExitCode.NOT_STARTED,
            ) from error
        self._ours = FileTree(root=ROOT, entries=in_order(hashed_entry(ROOT, name) for name in our_files()))
        return [
            replace(each, image=replace(each.image, contents=contents)) if each.image and each.image.foreign else each
            for each in candidates
        ]

    def _find_remedy(self, candidates: Sequence[Candidate]) -> Remedy | None:
        if self._supply is None:
            return None
        images = {one.host.name: one.image for one in candidates}
        drivers = [gpu.driver for one in candidates if one.choice.devices for gpu in one.answer.gpus]
        architecture = candidates[0].answer.architecture
        return self._supply.find_remedy(
            self._image, images, self._remotes, architecture=architecture, cuda=fitting_cuda(drivers)
        )

    def equip(self, _plan: Plan) -> bool:
        """Have the image brought to the nodes that lack it; return whether it was, and the job is to be planned again.

        Raises:
            RingmasterError: it can't be brought, or was stopped; nothing was started.
        """
        if self._supply is None or self._remedy is None:
            return False
        self._image = self._supply.bring(self._remedy)
        self._supply = None  # what is still missing refuses the job
        return True

    def prepare(self, plan: Plan) -> None:
        """Bring the user's own data to the nodes, which may take long, before anything of the job is created."""
        if self._data is None:
            return
        dirs = _data_dirs(plan)
        addresses = {node.name: node.address for node in plan.nodes}
        upload_data(self._remotes, self._data, dirs, addresses, self._say)

    def place(self, plan: Plan, folder: JobFolder, request: Request) -> None:
        """Create the job's folder on every node, and bring what belongs in it.

        Raises:
            RingmasterError: it failed on a node; nothing is left on any node.
        """
        contents = {"plan.json": folder.plan.read_bytes()}
        if request.secrets:
            contents["secrets"] = request.secrets.read_bytes()
        earlier = self._source.checkpoint.job if self._source else ""

        def make(remote: Remote) -> None:
            words = (job_dirs[remote.name], plan.name, owners[remote.name], data_dirs[remote.name], self._token)
            contents_here = {**contents, "node": remote.name.encode()}
            job_folders.ask(remote, "prepare", *words, earlier, files=job_folders.packed(contents_here, {}))

        job_dirs = {node.name: planned_job_dir(node) for node in plan.nodes}
        data_dirs = _data_dirs(plan)
        owners = {node.name: node.container.user for node in plan.nodes if node.container}
        try:
            on_all(self._remotes, make)
            if self._ours:
                upload_code(
                    self._remotes, self._ours, job_dirs, plan.name, owner=IMAGE_OWNER, say=self._say, into="ours"
                )
            if self._code:
                upload_code(self._remotes, self._code, job_dirs, plan.name, owner=IMAGE_OWNER, say=self._say)
            if self._source:
                self._bring(self._source, plan, folder, owners)
        except BaseException:
            with suppress(*Trouble):
                self._discard(plan)
            raise

    def _bring(self, source: "_Source", plan: Plan, folder: JobFolder, owners: Mapping[str, str]) -> None:
        """Bring the checkpoint that the job continues from to all of its nodes."""
        checkpoint, host = source.checkpoint, source.host
        tree, holders = tree_of(checkpoint, Path(checkpoint.folder)), []
        here: Callable[[], FileTree] = partial(tree_of, checkpoint, Path(checkpoint.folder))
        if checkpoint.node and host:
            holders.append(Holder(name=host.name, address=source.address, top=checkpoint.folder))
            here = Home(checkpoint, folder.checkpoints, lambda: self._reach(host), self._say)
        places = {
            node.name: Place(
                folder=f"{planned_job_dir(node)}/{plan.name}", owner=owners[node.name], address=node.address
            )
            for node in plan.nodes
        }
        bring_checkpoint(self._remotes, tree, places, holders, here, self._say)

    def _discard(self, plan: Plan) -> None:
        """Remove the folders that we created for a job that never ran; another job's of that name stays."""
        dirs = {node.name: planned_job_dir(node) for node in plan.nodes}
        remotes = revived(self._remotes, self._pins)  # Ctrl-C has closed the connections
        on_all(remotes, lambda remote: job_folders.ask(remote, "discard", dirs[remote.name], plan.name, self._token))

    def job(self, plan: Plan, folder: JobFolder) -> ClusterJob:
        """Return the job, as what runs it and ends it."""
        return ClusterJob(plan, folder, self._remotes, self._pins, self._say, clock_s=self._clock_s, token=self._token)

    def _look_at(self, remote: Remote, name: str) -> _Observed:
        done = remote.run(probe_answer.command(remote.host, name))
        stderr = done.why if done.code else ""
        answer = probe_answer.parse(remote.host, done.text, heard_at=time.time(), stderr=stderr)
        client = remote.engine()
        return _Observed(
            answer=answer,
            image=_image(client, answer, self._image) if self._image else None,
            jobs=tuple(
                each.as_job_on_node for each in containers.find(client) if each.holds(time.time() + answer.clock_s)
            ),
            engine_problem=containers.engine_problem(client.info(), client.version()),
        )

    def _list_files(self, request: Request) -> None:
        for what, path in (("SCRIPT", request.program.file), ("DATA", request.data)):
            if path and any("\udc80" <= letter <= "\udcff" for letter in path.name):
                raise RingmasterError(
                    f"{what}: {path}: its name is not UTF-8, so it can't be passed to a container; rename it"
                )
        if not request.program.bundled:
            self._code = list_code(request.program.root, request.program.file, secrets=request.secrets)
        if request.data is not None:
            self._data = list_data(request.data, self._say)

    def _places(self, request: Request, image: ImageFacts) -> Places:
        own = None
        python, rank_program = container.IMAGE_PYTHON, container.IMAGE_RANK_PROGRAM
        if image.contents:
            python, rank_program = Path(image.contents.python), container.BROUGHT_RANK_PROGRAM
        if self._data is not None:
            own = container.OWN_DATA / self._data.hash / self._data.entries[0].path.partition("/")[0]
        return Places(
            run=container.RUN,
            data=container.DATA,
            own_data=own,
            checkpoints=container.RUN / "checkpoints",
            code=container.IMAGE_ROOT if request.program.bundled else container.CODE,
            secrets=container.SECRETS if request.secrets else None,
            rank_program=rank_program,
            python=python,
            agent=(str(python), "-m", "torch.distributed.run"),
        )

    def _file_notes(self) -> Iterator[str]:
        if self._code:
            yield f"code: {describe(self._code)} ({self._code.hash[:12]}) from {self._code.root}"
            yield from self._code.warnings
        if self._data:
            yield f"data: {describe(self._data)} ({self._data.hash[:12]})"
            yield from self._data.warnings


def _candidate(host: Host, observed: _Observed, request: Request) -> Candidate:
    return Candidate(
        host=host,
        answer=observed.answer,
        choice=choose_gpus(observed.answer, observed.jobs, request.gpus, promised_gpus(host)),
        image=observed.image,
        jobs=observed.jobs,
        engine_problem=observed.engine_problem,
    )


def _facts(candidate: Candidate, reference: str) -> NodeFacts:
    assert candidate.image is not None
    return to_node_facts(candidate.host, candidate.answer, candidate.choice, candidate.image, reference)


def _data_dirs(plan: Plan) -> dict[str, str]:
    return {node.name: container.node_folder(node.container, container.DATA) for node in plan.nodes}


def _image(client: docker.DockerClient, answer: ProbeAnswer, reference: str) -> ImageFacts | None:
    for name in image_names(answer, reference):
        with suppress(ImageNotFound):
            return labels.from_engine(client.images.get(name).attrs)
    return None


def _versions(image: ImageFacts | None, reference: str) -> str:
    packages = image.packages if image else {}
    known = [f"{name} {packages[name]}" for name in ("torch", "torchvision") if name in packages]
    cuda = [f"CUDA {image.cuda}"] if image and image.cuda else []
    chosen = image.labels.get(labels.CHOSEN_TORCH) if image else ""
    own = [f"TORCH={chosen} was your own choice, not a lock of Ringmaster's"] if chosen else []
    return ", ".join([f"image {reference.rpartition('@')[2][:19]}", *known, *cuda, *own])
