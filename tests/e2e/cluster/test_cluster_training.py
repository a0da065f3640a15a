"""`make train NODES=2` with the defaults on a provisioned cluster: what runs there, and what comes home."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster, step
from tests.e2e.jobs import Job
from tests.support.environment import kept

pytestmark = pytest.mark.timeout(3600)  # the first test waits for the lab and the image

_DATA = "/var/lib/ringmaster/data"
_LISTENERS = r"""ss -Hltunp | while read -r _ _ _ _ address _ program; do
    pid=$(echo "$program" | sed -n 's/.*pid=\([0-9]*\).*/\1/p')
    echo "$address $(tr '\0' ' ' < /proc/${pid:-none}/cmdline)"
done 2>/dev/null"""
"""Prints each address that a node listens at, and the words of its program; docker's own name server has none."""


def test_a_bare_cluster_trains_a_model_by_its_second_command(first_job: Job) -> None:
    """After `make provision` comes `make train`: it says that it builds the image, and delivers it first."""
    assert first_job.exit_code == 0, first_job.output
    assert first_job.summary["state"] == "succeeded" and first_job.summary["test_accuracy"] is not None
    if not kept():
        assert "no image is recorded: first, build one on node1, and deliver it to node1, node2" in first_job.output
        (built_s,) = re.findall(r"PyTorch and what it needs: (\d+\.\d) s", first_job.output)
        assert first_job.summary["first_step_s"] > float(built_s), "counted from the launcher's start"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A job with the defaults: what was seen on the nodes while it ran, and its end."""

    job: Job
    containers: dict[str, list[dict[str, Any]]]
    processes: dict[str, str]
    listeners: dict[str, list[str]]


@pytest.fixture(scope="module")
def trained(cluster: Cluster) -> Trained:
    for node in NODES:  # a kept lab has the data of the run before
        cluster.ssh(node, "sh", "-c", f"rm -rf {_DATA}/FashionMNIST {_DATA}/fashion-mnist.json")
    with step("make train NODES=2"):
        running = cluster.start(NODES=2)
        running.await_steps(1)
        containers, processes = cluster.containers(running.job.name), cluster.processes(running.job.name)
        listeners = {node: cluster.machines[node].run("sh", "-c", _LISTENERS).splitlines() for node in NODES}
        job = running.ended()
    return Trained(job=job, containers=containers, processes=processes, listeners=listeners)


def test_it_learns_and_all_of_it_comes_home(trained: Trained) -> None:
    job = trained.job
    assert job.exit_code == 0, job.output
    summary = job.summary
    assert (summary["state"], summary["exit_code"], summary["failure"]) == ("succeeded", 0, None)
    assert summary["test_accuracy"] >= 0.90
    assert (summary["nodes"], summary["world_size"], summary["backend"]) == (list(NODES), 4, "gloo")
    assert 0 < summary["first_step_s"] < summary["wall_s"]
    assert sorted(path.name for path in job.folder.iterdir()) == [
        *(".launcher", "checkpoints", "job.toml", "logs", "metrics.jsonl", "plan.json", "report.html", "summary.json"),
    ]
    assert (job.folder / summary["checkpoint"]).is_file()
    kinds = [json.loads(line)["kind"] for line in (job.folder / "metrics.jsonl").read_text().splitlines()]
    assert kinds.count("epoch") == summary["epochs"]
    for node in NODES:
        assert (job.folder / "logs" / f"{node}.log").read_text().startswith("[")  # a rank's number
    assert job.lines_of("node1:0")


def test_one_container_with_no_privilege_ran_on_each_node(trained: Trained, cluster: Cluster) -> None:
    for node, found in trained.containers.items():
        assert len(found) == 1, node
        container, host = found[0], found[0]["HostConfig"]
        assert container["Image"] == cluster.image == container["Config"]["Image"], "by digest, not by a tag"
        assert container["Config"]["User"] == cluster.ssh(node, "sh", "-c", "echo $(id -u):$(id -g)").strip()
        assert container["Config"]["User"] == "1000:1000"
        assert [(each["Count"], each["Capabilities"]) for each in host["DeviceRequests"]] == [(-1, [["gpu"]])]
        assert (host["NetworkMode"], host["Privileged"], host["CapAdd"]) == ("host", False, None)
        assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
        assert (host["PidMode"], host["IpcMode"], host["UsernsMode"]) == ("", "private", "host")
        assert not host["Binds"] and not host["Devices"]
        assert not any("docker.sock" in mount["Source"] for mount in container["Mounts"])
        assert int(trained.processes[node]) > 0


def test_only_ssh_and_torch_listen_for_others_while_it_runs(trained: Trained, cluster: Cluster) -> None:
    for node, lines in trained.listeners.items():
        ssh = cluster.machines[node].spec.ssh_port
        rendezvous = trained.job.plan["port"] if node == NODES[0] else None
        own = cluster.machines[node].address
        seen = set()
        for line in lines:
            where, _, words = line.partition(" ")
            address, _, port = where.rpartition(":")
            if address.startswith("127.") or address == "[::1]":
                continue
            if words.startswith("sshd: "):
                seen.add(("ssh", int(port) == ssh))
            elif " torch.distributed.run " in words:  # its store; torch binds it to all addresses
                seen.add(("store", int(port) == rendezvous))
            else:  # Gloo, at the cluster's address only
                seen.add(("rank", address == own and " -m trainer " in f"{words} "))
        expected = {"ssh", "rank"} | ({"store"} if rendezvous else set())
        assert seen == {(each, True) for each in expected}, f"{node}: {lines}"


def test_the_plan_is_what_ran(trained: Trained, cluster: Cluster) -> None:
    job = trained.job
    for node in job.plan["nodes"]:
        planned, found = node["container"], trained.containers[node["name"]][0]
        config, host = found["Config"], found["HostConfig"]
        image = cluster.image_on(node["name"])["Config"]
        assert node["image"] == cluster.image
        assert found["Name"] == f"/{planned['name']}"
        assert found["Image"] == planned["image"]
        assert config["Cmd"] == node["argv"]
        assert config["Entrypoint"] == image["Entrypoint"]
        assert (config["WorkingDir"], config["User"]) == (node["working_folder"], planned["user"])
        environment = dict(line.split("=", 1) for line in [*image["Env"], *config["Env"]])
        assert environment == {**dict(line.split("=", 1) for line in image["Env"]), **node["environment"]}
        assert config["Labels"] == {**image["Labels"], **planned["labels"]}
        assert planned["labels"] == {
            "ringmaster.job": job.name, "ringmaster.node": node["name"], "ringmaster.generation": "0",
        }  # fmt: skip
        mounts = {(each["Source"], each["Target"], each.get("ReadOnly", False)) for each in host["Mounts"]}
        assert mounts == {(each["source"], each["target"], each["read_only"]) for each in planned["binds"]}
        assert {each["Type"] for each in host["Mounts"]} == {"bind"}
        limits = {each["Name"]: (each["Soft"], each["Hard"]) for each in host["Ulimits"]}
        assert limits["memlock"] == (planned["memlock"], planned["memlock"])
        assert host["ShmSize"] == planned["shm_mib"] << 20
        assert planned["gpus"] == "all"
        assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "100m", "max-file": "5"}}


def test_nothing_is_left_but_what_the_next_user_wants_to_see(trained: Trained, cluster: Cluster) -> None:
    cluster.assert_nothing_runs(trained.job)
    for node in NODES:
        folder = f"/var/lib/ringmaster/jobs/{trained.job.name}"
        there = set(cluster.ssh(node, "ls", folder).split())
        assert there >= {"collected", "log", "plan.json", "run", "summary.json"}
        assert not there & {"code", "home", "secrets"}
        modes = cluster.ssh(node, "stat", "-c", "%a %U", "/var/lib/ringmaster/jobs", folder).splitlines()
        assert modes == ["700 ops", "700 ops"]
    status = cluster.make("status", NAME=trained.job.name)
    assert f"{trained.job.name}  succeeded" in status.output


def test_the_data_came_to_one_node_and_from_there_to_the_other_once(trained: Trained, cluster: Cluster) -> None:
    assert "sending it from node1 to node2" in trained.job.output
    before = data_of(cluster)
    assert before["node1"].splitlines() and len(set(before.values())) == 1, before
    end = last_step(trained.job)
    epochs = trained.job.summary["epochs"] + 1
    again = cluster.train(RESUME=trained.job.name, ARGS=f"--epochs {epochs} --max-steps {end + 4}")
    assert again.exit_code == 0, again.output
    assert data_of(cluster) == before
    assert "sending it" not in again.output and "fetching" not in again.output
    assert last_step(again) == end + 4
    assert not any(0 < step < end for step in steps(again)), "it went on where the other had ended"


def steps(job: Job) -> list[int]:
    """The optimizer steps on record."""
    return [json.loads(line).get("step") or 0 for line in (job.folder / "metrics.jsonl").read_text().splitlines()]


def last_step(job: Job) -> int:
    return max(steps(job))


def data_of(cluster: Cluster) -> dict[str, str]:
    """The fetched files on each node, with hash."""
    return {
        node: cluster.ssh(node, "sh", "-c", f"cd {_DATA} && find FashionMNIST -type f | sort | xargs sha256sum")
        for node in NODES
    }
