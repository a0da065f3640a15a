"""The machines of an inventory as the place of a job's nodes: containers, started over SSH."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from launcher.base import node_table
from launcher.base.errors import RingmasterError
from launcher.cluster import containers, job_folders
from launcher.cluster.job import ClusterJob, planned_job_dir
from launcher.cluster.preflight import checks, node_facts, requirements
from launcher.cluster.preflight import image as node_image
from launcher.cluster.preflight.checks import Asked, Candidate
from launcher.cluster.preflight.gpus import JobThere, choose, promised_gpus, to_facts
from launcher.cluster.preflight.node_facts import ProbeAnswer
from launcher.cluster.transfer.code import list_code
from launcher.cluster.transfer.data import list_data
from launcher.cluster.transfer.file_tree import Tree, describe
from launcher.cluster.transfer.upload import place_code, place_data
from launcher.image import labels
from launcher.image.content import trainer_hash
from launcher.image.labels import ImageFacts
from launcher.inventory.hosts import Host
from launcher.job import container
from launcher.job.folder import JobFolder
from launcher.job.plan import NodeFacts, Places, Plan, make_plan
from launcher.job.request import Request
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all, revived

IMAGE_OWNER = (container.IMAGE_USER, container.IMAGE_USER)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What one node has told."""

    look: ProbeAnswer
    image: ImageFacts | None
    jobs: tuple[JobThere, ...]


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
    ) -> None:
        """Args:
        hosts: the chosen nodes, in order.
        pins: the inventory's known_hosts.
        image: the recorded image; empty where none is.
        """
        self._hosts = hosts
        self._remotes = dict(remotes)
        self._pins = pins
        self._image = image
        self._say = say
        self._code: Tree | None = None
        self._data: Tree | None = None
        self._clock_s = 0.0
        """Seconds that the head's clock is ahead of ours."""
        self._token = uuid.uuid4().hex

    def plan(self, folder: JobFolder, asked: Request, *, resumes: bool) -> Plan:
        """Look at all nodes at once and plan the job.

        Raises:
            RingmasterError: a node is not ready; the table of all of them was shown.
        """
        seen = on_all(self._remotes, self._look)
        candidates = [self._candidate(host, seen[host.name], asked) for host in self._hosts]
        wanted = Asked(image=self._image, trainer=trainer_hash(), packages=requirements.find(asked.program))
        report = checks.judge(candidates, wanted)
        if report.problems:
            if len(report.problems) > 1:
                node_table.show(checks.rows(candidates, report))
            raise report.error
        self._clock_s = candidates[0].look.clock_s
        self._list_trees(asked)
        facts = [self._facts(candidate) for candidate in candidates]
        self.versions = _versions(candidates[0].image, self._image)
        port = checks.free_port(candidates[0].look.listening, candidates[0].host.name)
        made = make_plan(folder.name, asked, facts, self._places(asked), port, resumes=resumes)
        notes = (*made.notes, *(str(warning) for warning in report.warnings), *self._tree_notes())
        return replace(made, notes=notes, code=self._code.hash if self._code else None)

    def prepare(self, plan: Plan) -> None:
        """Bring the user's own data, which may take long, before anything of the job is made."""
        if self._data is None:
            return
        dirs = _data_dirs(plan)
        addresses = {node.name: node.address for node in plan.nodes}
        place_data(self._remotes, self._data, dirs, addresses, self._say)

    def place(self, plan: Plan, folder: JobFolder, asked: Request) -> None:
        """Make the job's folder on every node, and bring what belongs in it.

        Raises:
            RingmasterError: it failed on a node; nothing is left on any.
        """
        contents = {"plan.json": folder.plan.read_bytes()}
        if asked.secrets:
            contents["secrets"] = asked.secrets.read_bytes()
        inherited = {
            f"run/checkpoints/{path.relative_to(folder.checkpoints).as_posix()}": path
            for path in sorted(folder.checkpoints.rglob("*"))
            if path.is_file() or path.is_symlink()
        }

        def make(remote: Remote) -> None:
            words = (job_dirs[remote.name], plan.name, owners[remote.name], data_dirs[remote.name], self._token)
            own = {**contents, "node": remote.name.encode()}
            job_folders.ask(remote, "prepare", *words, files=job_folders.packed(own, inherited))

        job_dirs = {node.name: planned_job_dir(node) for node in plan.nodes}
        data_dirs = _data_dirs(plan)
        owners = {node.name: node.container.user for node in plan.nodes if node.container}
        try:
            on_all(self._remotes, make)
            if self._code:
                place_code(self._remotes, self._code, job_dirs, plan.name, owner=IMAGE_OWNER, say=self._say)
        except BaseException:
            with suppress(*Trouble):
                self._discard(plan)
            raise

    def _discard(self, plan: Plan) -> None:
        """Remove the folders that we made of a job that never ran; another's of that name stays."""
        dirs = {node.name: planned_job_dir(node) for node in plan.nodes}
        chosen = revived(self._remotes, self._pins)  # Ctrl-C has closed them
        on_all(chosen, lambda remote: job_folders.ask(remote, "discard", dirs[remote.name], plan.name, self._token))

    def job(self, plan: Plan, folder: JobFolder) -> ClusterJob:
        """The job as it runs and ends."""
        return ClusterJob(plan, folder, self._remotes, self._pins, self._say, clock_s=self._clock_s, token=self._token)

    def _look(self, remote: Remote) -> _Seen:
        done = remote.run(node_facts.question(remote.host))
        look = node_facts.parse(remote.host, done.text, heard_at=time.time(), why=done.why if done.code else "")
        client = remote.engine()
        return _Seen(
            look=look,
            image=_image(client, look, self._image) if self._image else None,
            jobs=tuple(
                each.as_there for each in containers.containers(client) if each.holds(time.time() + look.clock_s)
            ),
        )

    def _candidate(self, host: Host, seen: _Seen, asked: Request) -> Candidate:
        choice = choose(seen.look, seen.jobs, asked.gpus, promised_gpus(host))
        return Candidate(host=host, look=seen.look, choice=choice, image=seen.image, jobs=seen.jobs)

    def _list_trees(self, asked: Request) -> None:
        for what, path in (("SCRIPT", asked.program.script), ("DATA", asked.data)):
            if path and any("\udc80" <= letter <= "\udcff" for letter in path.name):
                raise RingmasterError(
                    f"{what}: {path}: its name is not UTF-8, which no container can be told; rename it"
                )
        if asked.program.script is not None:
            self._code = list_code(asked.program.root, asked.program.script, secrets=asked.secrets)
        if asked.data is not None:
            self._data = list_data(asked.data, self._say)

    def _facts(self, candidate: Candidate) -> NodeFacts:
        assert candidate.image is not None
        return to_facts(candidate.host, candidate.look, candidate.choice, candidate.image, self._image)

    def _places(self, asked: Request) -> Places:
        own = None
        if self._data is not None:
            own = container.OWN_DATA / self._data.hash / self._data.entries[0].path.partition("/")[0]
        return Places(
            run=container.RUN,
            data=container.DATA,
            own_data=own,
            checkpoints=container.RUN / "checkpoints",
            code=container.IMAGE_ROOT if asked.program.script is None else container.CODE,
            secrets=container.SECRETS if asked.secrets else None,
            rank_program=container.IMAGE_RANK_PROGRAM,
            python=container.IMAGE_PYTHON,
            agent=(str(container.IMAGE_PYTHON), "-m", "torch.distributed.run"),
        )

    def _tree_notes(self) -> Iterator[str]:
        if self._code:
            yield f"code: {describe(self._code)} ({self._code.hash[:12]}) from {self._code.root}"
            yield from self._code.warnings
        if self._data:
            yield f"data: {describe(self._data)} ({self._data.hash[:12]})"
            yield from self._data.warnings


def _data_dirs(plan: Plan) -> dict[str, str]:
    return {node.name: container.node_folder(node.container, container.DATA) for node in plan.nodes}


def _image(client: docker.DockerClient, look: ProbeAnswer, reference: str) -> ImageFacts | None:
    for name in node_image.names_there(look, reference):
        with suppress(ImageNotFound):
            return labels.from_engine(client.images.get(name).attrs)
    return None


def _versions(image: ImageFacts | None, reference: str) -> str:
    packages = image.packages if image else {}
    known = [f"{name} {packages[name]}" for name in ("torch", "torchvision") if name in packages]
    cuda = [f"CUDA {image.cuda}"] if image and image.cuda else []
    return ", ".join([f"image {reference.rpartition('@')[2][:19]}", *known, *cuda])
