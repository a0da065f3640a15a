"""Plans, and the facts and requests that they are made from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.job import container
from launcher.job.container import ContainerFacts
from launcher.job.facts import NodeFacts, Places
from launcher.job.plan import Plan, make_plan
from launcher.job.program import Program
from launcher.job.request import Request

DIGEST = "registry.example/train@sha256:0123"

FACTS = ContainerFacts(
    image="sha256:0123",
    digest=DIGEST,
    user="1000:1000",
    comm_env={"NCCL_IB_HCA": "mlx5_0", "GLOO_SOCKET_IFNAME": "eth9"},
    memory=64 << 30,
    job_dir="/var/jobs",
    data_dir="/var/data",
    cuda="13.2",
)

PLACES = Places(
    run=Path("/runs/job"),
    data=Path("/data"),
    checkpoints=Path("/runs/job/checkpoints"),
    rank_program=Path("/launcher/rank.py"),
    python=Path("/bin/python"),
    code=Path("/code"),
    agent=("/bin/torchrun",),
)


def facts(count: int, gpus: tuple[str, ...] = (), address: str = "127.0.0.1", **settings: Any) -> list[NodeFacts]:
    """Return nodes that are processes of one machine."""
    return [
        NodeFacts(
            name=f"node{number + 1}",
            runtime="process",
            address=address,
            interface="lo",
            gpus=gpus,
            cores=8,
            settings=settings,
        )
        for number in range(count)
    ]


def request(*arguments: str, **fields: Any) -> Request:
    """Return a request for the bundled trainer."""
    return Request(program=Program(arguments=arguments, root=Path("/checkout")), **fields)


def plan_for(nodes: list[NodeFacts], user_request: Request | None = None) -> Plan:
    """Return a plan of processes on this machine."""
    return make_plan("job", user_request or request(), nodes, PLACES, 29500)


def cluster_plan(
    count: int = 2,
    gpus: tuple[str, ...] = (),
    arguments: tuple[str, ...] = (),
    *,
    name: str = "job",
    script: bool = False,
    secrets: bool = False,
    **changed: Any,
) -> Plan:
    """Return a plan of containers, as `ClusterSite` makes it."""
    path = Path("/home/u/train.py") if script else None
    foreign = bool(changed.get("site"))
    places = Places(
        run=container.RUN,
        data=container.DATA,
        checkpoints=container.RUN / "checkpoints",
        code=container.CODE if script else container.IMAGE_ROOT,
        secrets=container.SECRETS if secrets else None,
        rank_program=container.BROUGHT_RANK_PROGRAM if foreign else container.IMAGE_RANK_PROGRAM,
        python=Path("/usr/bin/python3") if foreign else container.IMAGE_PYTHON,
        agent=PLACES.agent,
    )
    user_request = Request(program=Program(arguments=arguments, root=Path("/home/u"), script=path))
    return make_plan(name, user_request, cluster_facts(count, gpus, **changed), places, 29500)


def cluster_facts(count: int, gpus: tuple[str, ...] = (), **changed: Any) -> list[NodeFacts]:
    """Return nodes that are machines of their own.

    Args:
        changed: fields of their `ContainerFacts`.
    """
    return [
        replace(fact, runtime="docker", address=f"10.0.0.{number}", container=replace(FACTS, **changed))
        for number, fact in enumerate(facts(count, gpus), 1)
    ]
