"""What the plan is made of, from what a node answered."""

from dataclasses import replace

from launcher.cluster.preflight.gpus import GpuChoice, choose_gpus
from launcher.cluster.preflight.plan_input import to_node_facts
from launcher.image.labels import ImageFacts
from tests.support.probe_answers import answer, host

IMAGE = ImageFacts(id="sha256:i", architecture="amd64", labels={"ringmaster.cuda": "13.2"})


def test_facts_for_the_plan() -> None:
    facts = to_node_facts(host(ranks_per_node=2), answer(), choose_gpus(answer(), (), "all", None), IMAGE, "r@sha256:r")
    assert (facts.name, facts.address, facts.interface, facts.gpus) == ("node1", "10.0.0.1", "eth1", ("0", "1"))
    assert (facts.cores, facts.settings) == (8, {"ranks_per_node": 2})
    assert facts.container is not None
    assert (facts.container.image, facts.container.digest, facts.container.cuda) == ("sha256:i", "r@sha256:r", "13.2")
    assert (facts.container.user, facts.container.all_gpus, facts.container.job_dir) == ("1000:1000", True, "/jobs")


def test_root_is_the_images_own_user() -> None:
    container = to_node_facts(host(), replace(answer(), uid=0, gid=0), GpuChoice(), IMAGE, "r").container
    assert container is not None
    assert container.user == "10001:10001"
