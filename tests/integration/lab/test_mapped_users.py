"""An engine that maps users (userns-remap): a job's container still writes its folders as the user of the job."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lab.lab import Lab
from lab.nodes.node import Node
from launcher.job.container import command_line, describe
from tests.integration.lab import small_image
from tests.support.plans import FACTS

pytestmark = pytest.mark.timeout(600)
_TOP = "/var/tmp/mapped"
_CONFIG = "/etc/docker/daemon.json"


@contextmanager
def mapped_users(node: Node) -> Iterator[None]:
    """Let the node's engine give its containers users of their own."""
    before = node.run("sh", "-c", f"cat {_CONFIG} 2>/dev/null || echo '{{}}'")
    try:
        _configure(node, json.dumps({**json.loads(before), "userns-remap": "default"}))
        yield
    finally:
        _configure(node, before)
        node.run("sh", "-c", f"rm -rf {_TOP} /var/lib/docker/[0-9]*.[0-9]*; userdel dockremap")


def _configure(node: Node, text: str) -> None:
    node.run("sh", "-c", 'mkdir -p /etc/docker; printf %s "$1" >"$2"', "sh", text, _CONFIG)
    node.run("systemctl", "reset-failed", "docker")
    node.run("systemctl", "restart", "docker")


def test_a_jobs_container_writes_as_the_jobs_user(shared_lab: Lab) -> None:
    node = shared_lab["node2"]
    facts = replace(
        FACTS, image=small_image.NAME, user="1000:1000", memlock=65536, job_dir=f"{_TOP}/jobs", data_dir=f"{_TOP}/data"
    )
    container = describe("job", "node2", facts, (), code=False, secrets=False)
    with mapped_users(node):
        assert "name=userns" in node.run("docker", "info", "--format", "{{.SecurityOptions}}")
        small_image.provide(node)
        node.run(
            "mkdir", "-p", f"{_TOP}/data/own", *(f"{_TOP}/jobs/{name}" for name in ("job/run", "job/home", ".cache"))
        )
        node.run("chown", "-R", "1000:1000", _TOP)
        line = command_line(container, ["touch", "/job/run/written"], "/job/run", {})
        node.run("sh", "-c", line.replace("--detach", "--rm", 1))
        assert node.run("stat", "--format=%u", f"{_TOP}/jobs/job/run/written") == "1000\n"
