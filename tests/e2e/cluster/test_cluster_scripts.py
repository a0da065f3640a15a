"""A user's own program on a cluster: it travels whole, is given what was said, and its secrets stay secret."""

import hashlib
import shlex
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster, step
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

_PLAIN = "hunter2"
"""The part of the secret that no way of quoting changes."""
_SECRET = f"{_PLAIN}-'$(id)\"; tür"
_STORES = ("/var/lib/ringmaster/jobs/.code/blobs", "/var/lib/ringmaster/data/own")
_PROGRAM = """
import hashlib, os, sys, time
from pkg import helper
import beside
rank, run = os.environ["RANK"], os.environ["RUN_DIR"]
secret = os.environ["TOKEN"]
print("secret:", secret, flush=True)
print(ascii({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "local_rank": os.environ["LOCAL_RANK"], "helper": helper.VALUE,
    "beside": beside.VALUE,
    "executed": [name for name in os.listdir("/tmp") if name.startswith("executed-")], "files": sorted(os.listdir(".")),
    "secret": hashlib.sha256(secret.encode()).hexdigest(),
    "env": [os.environ["NCCL_DEBUG"], os.environ["NOTE"]],
    "data": {each.name: open(each).read() for each in os.scandir(os.environ["DATA_DIR"])},
}), flush=True)
with open("written beside the code", "w") as file:
    file.write("the copy is the job's own")
with open(f"{run}/from rank {rank}.txt", "w") as file:
    file.write(rank)
with open(os.environ["CHECKPOINT_DIR"] + f"/{rank}.bin", "w") as file:
    file.write(rank)
while not os.path.exists(f"{run}/go on"):
    time.sleep(0.1)
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A job of the program above."""

    job: Job
    dry: Job
    expected: list[str]
    witness: Path
    seen: dict[str, str]
    """Everything that could be seen of it while it ran: here and on the nodes."""
    files: dict[str, str]
    """The files on each node that had the secret meanwhile."""
    stored: dict[str, str]
    """Code and data on each node, file by file."""
    again: Job
    stored_again: dict[str, str]


@pytest.fixture(scope="module")
def ran(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    top = tmp_path_factory.mktemp("user") / "user's own ü"
    script = write_program(top / "repository" / "sub folder" / "tr äin.py")
    secrets = top / "secrets"
    secrets.write_text(f"# mine\nTOKEN={_SECRET}\n")
    data = top / "my data"
    data.mkdir()
    (data / "pictures ü.txt").write_text("three of them")
    witness = Path(f"/tmp/executed-{uuid.uuid4().hex}")
    touch = f"touch {witness}"
    expected = [
        *("--lr", "0.1", f'it\'s "$HOME" $({touch})', f"`{touch}`", f"; {touch}", f"$(shell {touch})", "a\nb", ""),
        *("$$ ${local_rank}", "*", "--", "--nnodes=7", "-x", "schön 训练", "\\", "%s {0}", "&& false", "~"),
    ]
    variables = {"SCRIPT": script, "ARGS": shlex.join(expected), "SECRETS": secrets, "DATA": data, "GPUS": "1"}
    variables |= {"ENV": f"NOTE={shlex.quote(expected[2])}", "NCCL_DEBUG": "INFO"}
    dry = cluster.train(DRY_RUN=1, **variables)
    with step("a user's program"):
        running = cluster.start(**variables)
        running.until(lambda: all(at_work(cluster, running.job.name, node) for node in NODES))
        seen = {node: whatever_shows(cluster, running.job.name, node) for node in NODES}
        seen["here"] = command_lines()
        files = {node: files_with_the_secret(cluster, node) for node in NODES}
        go_on(cluster, running.job.name)
        job = running.ended()
    stored = {node: what_is_stored(cluster, node) for node in NODES}
    running = cluster.start(**{**variables, "ARGS": "again"})
    running.until(lambda: all(at_work(cluster, running.job.name, node) for node in NODES))
    go_on(cluster, running.job.name)
    again = running.ended()
    return Ran(
        job=job, dry=dry, expected=expected, witness=witness, seen=seen, files=files, stored=stored, again=again,
        stored_again={node: what_is_stored(cluster, node) for node in NODES},
    )  # fmt: skip


def test_it_is_the_same_program_with_the_same_words_on_both_nodes(ran: Ran, cluster: Cluster) -> None:
    assert ran.job.exit_code == 0, ran.job.output
    for label in ("node1:0", "node2:1"):
        said = eval(ran.job.lines_of(label)[-1])  # noqa: S307 - what our own program printed
        assert said["argv"] == ran.expected
        assert (said["helper"], said["beside"], said["local_rank"], said["cwd"]) == (42, 43, "0", "/job/code")
        assert said["files"] == [".gitignore", "sub folder"], "what git ignores stays at home"
        assert said["data"] == {"pictures ü.txt": "three of them"}
        assert said["env"] == ["INFO", ran.expected[2]]
        assert said["secret"] == hashlib.sha256(_SECRET.encode()).hexdigest()
        assert not said["executed"]
    assert not ran.witness.exists(), "an argument was executed on the way"
    assert not any(ran.witness.name in cluster.ssh(node, "ls", "/tmp") for node in NODES)


def test_what_any_rank_writes_comes_home(ran: Ran) -> None:
    folder = ran.job.folder
    assert (folder / "from rank 0.txt").read_text() == "0"
    assert (folder / "checkpoints" / "0.bin").read_text() == "0"
    assert (folder / "nodes" / "node2" / "from rank 1.txt").read_text() == "1"
    assert (folder / "nodes" / "node2" / "checkpoints" / "1.bin").read_text() == "1"


def test_the_secret_is_seen_nowhere(ran: Ran, cluster: Cluster) -> None:
    said = {"the screen": ran.job.output, "a dry run": ran.dry.output, "another run": ran.again.output, **ran.seen}
    for job in (ran.job, ran.again):
        for path in (path for path in job.folder.rglob("*") if path.is_file()):
            said[str(path)] = path.read_text()
    for node in NODES:
        assert ran.files[node] == f"/var/lib/ringmaster/jobs/{ran.job.name}/secrets", "and only while it ran"
        assert files_with_the_secret(cluster, node) == ""
    assert "secret: ***" in ran.job.output, "the program printed it"
    assert all("RINGMASTER_SECRETS=/job/secrets" in ran.seen[node] for node in NODES)
    for where, text in said.items():
        assert _PLAIN not in text, where


def test_a_dry_run_shows_what_would_run_and_leaves_nothing(ran: Ran, cluster: Cluster) -> None:
    assert ran.dry.exit_code == 0, ran.dry.output
    assert ran.dry.output.count("docker run --detach") == 2
    assert not ran.dry.folder.exists()
    assert all(ran.dry.name not in folders for _, folders in cluster.traces().values())


def test_code_that_is_there_is_not_sent_again(ran: Ran) -> None:
    assert ran.again.exit_code == 0, ran.again.output
    assert eval(ran.again.lines_of("node2:1")[-1])["argv"] == ["again"]  # noqa: S307
    assert ran.again.plan["code"] == ran.job.plan["code"]
    assert ran.stored_again == ran.stored
    assert all(store in ran.stored[node] for store in _STORES for node in NODES)
    for job in (ran.job, ran.again):
        assert f"({job.plan['code'][:12]})" in job.output
    assert "written beside the code" not in ran.again.lines_of("node1:0")[-1], "each job has a copy of its own"


def write_program(script: Path) -> Path:
    """A git work tree with an ignored file, and modules beside the script and in a folder."""
    package, top = script.parent / "pkg", script.parent.parent
    package.mkdir(parents=True)
    script.write_text(_PROGRAM)
    (script.parent / "beside.py").write_text("VALUE = 43\n")
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("VALUE = 42\n")
    (top / ".gitignore").write_text("ignored*\n")
    (top / "ignored.bin").write_text("not for the nodes")
    subprocess.run(["git", "init", "-q", top], check=True, timeout=20)
    return script


def at_work(cluster: Cluster, job: str, node: str) -> bool:
    """Whether the program has come to where it waits."""
    found = cluster.machines.ssh(node, f"ls /var/lib/ringmaster/jobs/{job}/run/checkpoints").stdout
    return bool(found.strip())


def go_on(cluster: Cluster, job: str) -> None:
    for node in NODES:
        cluster.ssh(node, "touch", f"/var/lib/ringmaster/jobs/{job}/run/go on")


def whatever_shows(cluster: Cluster, job: str, node: str) -> str:
    """Inspected containers, all processes' command lines, the engine's log of the container, the plan."""
    ids = cluster.ssh(node, "docker", "ps", "-q").split()
    shown = [
        cluster.ssh(node, "docker", "inspect", *ids),
        cluster.ssh(node, "docker", "logs", ids[0]),
        cluster.ssh(node, "cat", f"/var/lib/ringmaster/jobs/{job}/plan.json"),
        cluster.machines[node].run("sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"),
    ]
    return "\n".join(shown)


def command_lines() -> str:
    """Of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def files_with_the_secret(cluster: Cluster, node: str) -> str:
    """Of all that Ringmaster and the engine keep there."""
    script = f"grep -rlF -- {_PLAIN} /var/lib/ringmaster /var/lib/docker/containers || true"
    return cluster.machines[node].run("sh", "-c", script).strip()


def what_is_stored(cluster: Cluster, node: str) -> str:
    """A file that was written again is another inode."""
    return cluster.ssh(node, "find", *_STORES, "-type", "f", "-printf", "%p %i %s\n")
