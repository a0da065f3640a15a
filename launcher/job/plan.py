"""A job's plan: what it holds, and how it is made from the nodes' facts and the user's request. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.job import spawn_start
from launcher.job.container import Bind, Container, describe
from launcher.job.environment import rank_environment
from launcher.job.facts import GLOO, NCCL, Job, NodeFacts, Places
from launcher.job.launch_style import SPAWN
from launcher.job.placeholders import names_in
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.on_node.rank import OWN_PORT

NAME = re.compile(r"[^\W_][\w.+-]{0,99}")
"""A job's name: it becomes the name of a folder."""
RANK_WORDS = 3
"""At the end of a node's command: how torchrun starts each rank's parent."""
_NODE = re.compile(r"[^\W_][\w.+-]{0,252}")


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node's part of a job."""

    name: str
    runtime: str
    address: str
    interface: str
    image: str | None
    """The training image by digest; None where the node's ranks are processes of this machine."""
    node_rank: int
    first_rank: int
    ranks: int
    devices: tuple[str, ...]
    working_folder: str
    environment: Mapping[str, str]
    argv: tuple[str, ...]
    container: Container | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a job needs, as data; equal requests on equal facts give equal plans."""

    name: str
    nodes: tuple[NodePlan, ...]
    world_size: int
    backend: str
    backend_chosen: bool
    """Whether the inventory itself asked for this backend."""
    port: int
    script: str | None
    module: str | None = None
    """What MODULE named."""
    code_root: str | None = None
    """The folder that a module was started from, or that CODE named; None: the script's own."""
    arguments: tuple[str, ...]
    data: str | None
    launch_style: str
    """The option that gives each rank its local rank, or `spawn`; empty: neither."""
    ranks: int | None = None
    """Processes per node, where RANKS asked for them."""
    rank_python: str | None = None
    """The user's own Python (RANK_PYTHON), where the ranks run with it."""
    placeholders: bool = False
    """Whether names in braces in `arguments` are filled in, for each node."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What ENV gave the ranks; the nodes' environments have it too."""
    code: str | None = None
    """The hash of the user's code as it travelled to the nodes; None where it did not."""
    work_limit: int | None = None
    """How many bytes of the working folders come home, where WORK_LIMIT says so."""
    notes: tuple[str, ...]
    """What the user is told before the start."""

    @property
    def bundled(self) -> bool:
        """Whether it is a job of the bundled trainer."""
        return self.script is None and self.module is None

    @property
    def own_meeting(self) -> bool:
        """Whether the program's processes meet at a port of their own, as those do that it starts itself."""
        return OWN_PORT in self.nodes[0].environment

    def as_json(self) -> dict[str, Any]:
        """Return the plan as `plan.json` stores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Plan":
        """Return the plan that `as_json` was called on, also after its way through a file.

        Raises:
            KeyError, TypeError, ValueError: it is no plan, of another version, or has names that can't be names.
        """
        nodes = [str(node["name"]) for node in stored["nodes"]]
        valid = NAME.fullmatch(str(stored["name"])) and all(map(_NODE.fullmatch, nodes))
        if not valid or len(set(nodes)) < len(nodes):
            raise ValueError("it has names that can't be a job's or a node's")  # they become file names here
        planned = tuple(
            NodePlan(**{**node, **_tuples(node), "container": _container(node["container"])})
            for node in stored["nodes"]
        )
        return cls(**{**stored, **_tuples(stored), "nodes": planned})


def _tuples(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) for key, value in stored.items() if isinstance(value, list)}


def _container(stored: Mapping[str, Any] | None) -> Container | None:
    if stored is None:
        return None
    binds = tuple(Bind(**bind) for bind in stored["binds"])
    return Container(**{**stored, **_tuples(stored), "binds": binds})


def make_plan(
    name: str, request: Request, facts: Sequence[NodeFacts], places: Places, port: int, *, resumes: bool = False
) -> Plan:
    """Plan a job on the nodes that `facts` describes, in order: the first is the head and has rank 0.

    Args:
        facts: the chosen nodes, `gpus` of each already its own share.
        port: a TCP port that is free on the head, for the rendezvous. The next port is free too.
        resumes: the checkpoint folder holds an earlier job's; to start from scratch instead would be an error.

    Raises:
        RingmasterError: the nodes ask for different backends, or for one that is impossible; the program's arguments
            contradict the plan, or its way to start processes the nodes' GPUs.
    """
    if request.strategy == "none":
        facts = [_with_one_gpu(fact) for fact in facts]
    ranks = [_ranks(fact, request) for fact in facts]
    backend, chosen, backend_notes = _backend(facts, ranks)
    job = Job(
        name=name,
        request=request,
        facts=tuple(facts),
        ranks=tuple(ranks),
        backend=backend,
        backend_chosen=chosen,
        places=places,
        port=port,
        resumes=resumes,
    )
    if request.program.spawn and job.own_processes:
        spawn_start.refuse_unequal_gpus(request.program.spawn, [(fact.name, len(fact.gpus)) for fact in facts])
    return Plan(
        name=name,
        nodes=tuple(_node_plan(job, node_rank) for node_rank in range(len(facts))),
        world_size=sum(ranks),
        backend=backend,
        backend_chosen=chosen,
        port=port,
        script=str(request.program.script) if request.program.script else None,
        module=request.program.module or None,
        code_root=str(request.program.root) if request.program.importable else None,
        arguments=request.program.arguments,
        data=str(request.data) if request.data else None,
        launch_style=SPAWN if request.program.spawn else request.program.local_rank_flag,
        ranks=request.ranks,
        placeholders=request.placeholders,
        variables=dict(request.variables),
        work_limit=request.work_limit,
        notes=(*backend_notes, *_notes(job)),
    )


def _ranks(fact: NodeFacts, request: Request) -> int:
    if request.ranks or request.strategy in {"none", "dp"} or request.program.spawn:
        return request.ranks or 1
    configured = fact.settings.get("ranks_per_node")
    return max(1, len(fact.gpus)) if configured is None else int(configured)


def _with_one_gpu(fact: NodeFacts) -> NodeFacts:
    if len(fact.gpus) < 2:
        return fact
    return replace(fact, gpus=fact.gpus[:1], container=fact.container and replace(fact.container, all_gpus=False))


def _backend(facts: Sequence[NodeFacts], ranks: Sequence[int]) -> tuple[str, bool, list[str]]:
    """Return the backend, whether the inventory chose it, and what the user is told about it.

    NCCL refuses two ranks on one GPU ("Duplicate GPU detected"), so it needs a GPU of its own for every rank.

    Raises:
        RingmasterError: the nodes ask for different backends, or for NCCL where it can't work.
    """
    configured = {str(fact.settings.get("backend", "auto")) for fact in facts}
    if len(configured) > 1:
        raise RingmasterError(
            f"ringmaster_backend is {' on some nodes, '.join(sorted(configured))} on others; choose one"
        )
    wanted = configured.pop()
    devices = [device for fact in facts for device in _located(fact)]
    own_gpu_each = len(set(devices)) == len(devices) and all(
        len(fact.gpus) >= count for fact, count in zip(facts, ranks, strict=True)
    )
    if wanted == NCCL and not own_gpu_each:
        raise RingmasterError(
            f"ringmaster_backend is nccl, but {sum(ranks)} ranks have {len(set(devices))} GPUs; NCCL needs one for "
            "each: ask for fewer NODES, or set ringmaster_backend: auto"
        )
    if wanted != "auto":
        return wanted, True, []
    if own_gpu_each:
        return NCCL, False, []
    if devices:
        return GLOO, False, [f"{sum(ranks)} ranks share {len(set(devices))} GPU(s), which NCCL refuses: backend Gloo"]
    return GLOO, False, []


def _located(fact: NodeFacts) -> list[tuple[str, str]]:
    """Return a node's devices, with its address to tell machines apart."""
    return [(fact.address, device) for device in fact.gpus]


def _notes(job: Job) -> list[str]:
    """Return what the user is told about ranks and GPUs before the start."""
    notes, request, facts = [], job.request, job.facts
    if request.program.module:
        notes.append(_where_module_is(request.program))
    if request.program.local_rank_flag:
        notes.append(f"launch-style script: each rank is given {request.program.local_rank_flag}=<local rank>")
    if request.program.spawn:
        notes += spawn_start.notes(request.program.spawn, request.program.arguments, job.meeting, request.ranks)
    elif job.own_processes:
        notes.append("one process per node, which may start its own and let them meet at MASTER_ADDR:MASTER_PORT")
    elif request.ranks and any(len(fact.gpus) > request.ranks for fact in facts):
        notes.append(f"RANKS={request.ranks}: a node's other GPUs stay unused; one process for all is --strategy dp")
    if request.placeholders and not names_in(request.program.arguments):
        notes.append("PLACEHOLDERS=1: ARGS has none to fill in")
    if len({len(fact.gpus) for fact in facts}) > 1:
        counts = ", ".join(f"{fact.name} {len(fact.gpus)}" for fact in facts)
        notes.append(f"unequal GPU counts ({counts}): every step waits for the node with the most work per GPU")
    return notes


def _where_module_is(program: Program) -> str:
    if program.module_file:
        return f"module {program.module}: {program.module_file.relative_to(program.root)} in {program.root}"
    return f"{program.module} comes from where the ranks run, not from your code; the working folder is {program.root}"


def _node_plan(job: Job, node_rank: int) -> NodePlan:
    fact, program, places = job.facts[node_rank], job.request.program, job.places
    environment = rank_environment(job, node_rank)
    container = None
    if fact.container:
        own_code, secrets = not program.bundled, places.secrets is not None
        container = describe(job.name, fact.name, fact.container, fact.gpus, code=own_code, secrets=secrets)
        environment = container.defaults(fact.container, fact.gpus) | environment
        environment |= container.environment(fact.container, fact.gpus, checks=own_code)
    else:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(fact.gpus)  # also none: what is not planned is not used
    return NodePlan(
        name=fact.name,
        runtime=fact.runtime,
        address=fact.address,
        interface=fact.interface,
        image=fact.container.digest if fact.container else None,
        node_rank=node_rank,
        first_rank=sum(job.ranks[:node_rank]),
        ranks=job.ranks[node_rank],
        devices=fact.gpus,
        working_folder=str(places.code),
        environment=environment,
        argv=_torchrun(job, node_rank),
        container=container,
    )


def _torchrun(job: Job, node_rank: int) -> tuple[str, ...]:
    """Return the agent's command. Static rendezvous: node ranks follow the inventory, not the order of arrival."""
    places = job.places
    return (
        *places.agent,
        f"--nnodes={len(job.facts)}",
        f"--nproc-per-node={job.ranks[node_rank]}",
        f"--node-rank={node_rank}",
        f"--master-addr={job.facts[0].address}",
        f"--master-port={job.port}",
        # Without it the agent advertises its host name, which the others may not be able to resolve.
        f"--local-addr={job.facts[node_rank].address}",
        "--no-python",
        str(places.python),
        "-IS",  # the rank's parent needs no site-packages: 10 ms instead of 40
        str(places.rank_program),
    )
