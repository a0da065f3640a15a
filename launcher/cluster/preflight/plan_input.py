"""From a node's answer to the plan's input: turns a `ProbeAnswer` into the `NodeFacts` that a plan is made of. Pure."""

from launcher.cluster.preflight.gpus import GpuChoice
from launcher.cluster.preflight.network import cluster_address
from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.image.labels import ImageFacts
from launcher.inventory.hosts import Host
from launcher.job.container import IMAGE_USER, ContainerFacts
from launcher.job.facts import NodeFacts
from launcher.on_node.addresses import RECORD


def container_user(answer: ProbeAnswer) -> str:
    """Return the `uid:gid` of a container there: the SSH user's, but never root's."""
    return f"{answer.uid}:{answer.gid}" if answer.uid else f"{IMAGE_USER}:{IMAGE_USER}"


def to_node_facts(
    host: Host, answer: ProbeAnswer, choice: GpuChoice, image: ImageFacts, recorded_image: str
) -> NodeFacts:
    """Return what the plan needs to know of a node that has passed every check.

    Args:
        recorded_image: the image's reference as `make image` recorded it: the same on all nodes.
    """
    where = cluster_address(host, answer)
    return NodeFacts(
        name=host.name,
        runtime=host.runtime,
        address=str(where.address.ip),
        interface=where.interface,
        by_host_name=where.by_host_name,
        gpus=choice.devices,
        cores=answer.cores,
        settings=host.settings,
        container=ContainerFacts(
            image=image.id,
            digest=recorded_image,
            user=container_user(answer),
            all_gpus=choice.all_gpus,
            comm_env={name: value for name, value in (answer.comm_env or {}).items() if name != RECORD},
            infiniband=answer.devices,
            memory=answer.memory,
            memlock=answer.memlock,
            certificates=answer.certificates,
            job_dir=answer.job_dir.path,
            data_dir=answer.data_dir.path,
            cuda=image.cuda,
            site=image.contents.site if image.contents else "",
            capabilities=image.contents.capabilities if image.contents else "",
        ),
    )
