"""From the command to the first optimizer step on a cluster: `make train` against the shortest shell script.

The script starts the same two containers, from the same image with the same trainer, over two ssh connections at once:
as a careful person's own script does, without checks, labels, logs, results or a way to stop it. Both in turn
(A B A B …) after one uncounted round; the figure is the ratio of the medians. Needs two nodes with everything in
place: `make lab NODES=2 GPUS=2`, `make provision`, `make image`, the last two with INVENTORY=inventory/lab.yml.
"""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.first_step import restored_latest
from benchmarks.result import Result, Row, ratio
from benchmarks.turns import in_turn
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.base.timings import VARIABLE, durations
from launcher.commands.inventory import open_inventory
from launcher.job.container import HOME, RUN, Bind, command_line, node_folder
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.known_hosts import pinning_options
from trainer.reporting.summary import read_records, summarize

_ARGUMENTS = "--dataset synthetic --max-steps 1 --max-val-items 64"
_LIMIT_S = 300
_REPETITIONS, _QUICK_REPETITIONS = 7, 3


def measure(quick: bool, inventory: str) -> Result:
    """Return both ways' seconds, their ratio, and where our time goes.

    Raises:
        RingmasterError: there is no cluster of two nodes, or a run fails.
    """
    opened = open_inventory(str(_inventory(inventory)))
    path, hosts = opened.path, opened.hosts[:2]
    if len(hosts) < 2:
        raise RingmasterError(f"{path}: launching is measured on two nodes; it has {len(hosts)}")
    marks: list[dict[str, float]] = []
    plan = _planned(path)  # and with it the uncounted round of ours
    options = pinning_options(opened.pins)
    shells = {
        node.name: ["ssh", *host.ssh.options(options), "--", host.address]
        for node, host in zip(plan.nodes, hosts, strict=True)
    }
    _forget(plan, shells, plan.name)
    ways: dict[str, Callable[[], float]] = {
        "`make train NODES=2`": lambda: _make_train(path, plan, shells, marks),
        "shell script, two `ssh`": lambda: _by_hand(shells, plan),
    }
    _by_hand(shells, plan)  # uncounted
    seconds = in_turn(ways, _QUICK_REPETITIONS if quick else _REPETITIONS, unit="s")
    ours, script = (Row(label=label, unit="s", values=values) for label, values in seconds.items())
    return Result(
        name="launch",
        title="From the command to the first optimizer step, on a cluster",
        command="make bench ONLY=launch",
        rows=(ours, script, *_phases(marks)),
        ratios=(ratio("make train / shell script", ours, script),),
        notes=(
            f"Two nodes of {path.name}, {plan.world_size} ranks, backend {plan.backend}, in turn, after one uncounted "
            "round. The script starts the same containers with the same trainer over two `ssh` connections at once.",
            "Rows below these two: where the time of `make train` goes, each from the end of the one above it.",
        ),
    )


def _phases(marks: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    """Yield a row for each phase of `make train`, with its seconds in each run."""
    runs = [durations([(name, each[name]) for name in marks[0]]) for each in marks]
    for phase in zip(*runs, strict=True):
        yield Row(label=f"`make train`: {phase[0][0]}", unit="s", values=tuple(took for _, took in phase))


def _inventory(path: str) -> Path:
    chosen = Path(path) if path else ROOT / "inventory" / "lab.yml"
    if not chosen.exists():
        raise RingmasterError(
            f"{chosen}: no such inventory; launching is measured on a cluster: make lab NODES=2 GPUS=2, then "
            "make provision image INVENTORY=inventory/lab.yml"
        )
    return chosen


def _forget(plan: Plan, shells: Mapping[str, list[str]], name: str) -> None:
    """Remove a measured job's folders from the nodes: these keep ten jobs, which should be the user's own."""
    for node in plan.nodes:
        jobs = Path(node_folder(node.container, RUN)).parent.parent
        _checked([*shells[node.name], f"rm -rf {shlex.quote(str(jobs / name))}"])


def _make_train(path: Path, plan: Plan, shells: Mapping[str, list[str]], marks: list[dict[str, float]]) -> float:
    """Return the seconds to the first step under `make train`."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    folder = ROOT / "runs" / name
    with restored_latest(), tempfile.TemporaryDirectory() as here:
        times = Path(here) / "times.json"
        try:
            started_at = time.time()
            _checked(_train(path, name), {VARIABLE: str(times)})
            first = summarize(read_records(folder / "metrics.jsonl")).first_step_at
            if first is None:
                raise RingmasterError(f"{folder}: the trainer wrote no step", exit_code=ExitCode.FAILED)
            # The command's own start is not in the file: make, and Python until it has read its program.
            at = json.loads(times.read_text())
            summary = json.loads((folder / "summary.json").read_text())
            begun = (first - started_at) - summary["first_step_s"]
            marks.append(
                {
                    "make and Python up": begun,
                    **{key: value + begun for key, value in at.items()},
                    "first step": first - started_at,
                }
            )
            return first - started_at
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _forget(plan, shells, name)


def _train(path: Path, name: str) -> list[str]:
    command = ["make", "-s", "-C", str(ROOT), "train", "NODES=2", f"NAME={name}", f"INVENTORY={path.absolute()}"]
    return [*command, f"ARGS={_ARGUMENTS}"]


def _by_hand(shells: Mapping[str, list[str]], plan: Plan) -> float:
    """Return the seconds to the first step with the script."""
    folders = {name: _checked([*ssh, "mktemp -d"]).strip() for name, ssh in shells.items()}
    try:
        lines = ["#!/bin/sh"]
        for node in plan.nodes:
            docker = _without_rank_program(node, folders[node.name])
            lines.append(f"{shlex.join(shells[node.name])} {shlex.quote(docker)} &")
        lines.append("wait")
        with tempfile.TemporaryDirectory() as here:
            script = Path(here) / "train.sh"
            script.write_text("\n".join(lines) + "\n")
            started_at = time.time()
            _checked(["sh", str(script)])
            head = plan.nodes[0].name
            metrics = Path(here) / "metrics.jsonl"
            metrics.write_text(_checked([*shells[head], f"cat {folders[head]}/metrics.jsonl"]))
            first = summarize(read_records(metrics)).first_step_at
        if first is None:
            raise RingmasterError("the script's trainer wrote no step", exit_code=ExitCode.FAILED)
        return first - started_at
    finally:
        for name, ssh in shells.items():
            _checked([*ssh, f"rm -rf {folders[name]}"])


def _planned(path: Path) -> Plan:
    """Return the plan of such a job; the script uses its containers."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with restored_latest():
        try:
            _checked(_train(path, name))
            return Plan.from_json(json.loads((ROOT / "runs" / name / "plan.json").read_text()))
        finally:
            shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def _without_rank_program(node: NodePlan, folder: str) -> str:
    """Return the node's `docker run`, which waits for the end, and in which torchrun starts the trainer itself."""
    assert node.container is not None
    # Without the mounts of the job's own folder; data, caches and certificates stay.
    own = (str(RUN), str(HOME))
    binds: tuple[Bind, ...] = tuple(bind for bind in node.container.binds if bind.target not in own)
    container = replace(
        node.container,
        name=f"bench-{uuid.uuid4().hex[:8]}",
        labels={},
        binds=(*binds, Bind(source=folder, target=str(RUN))),
    )
    argv = (*node.argv[: node.argv.index("--no-python")], "-m", "trainer", *shlex.split(_ARGUMENTS))
    environment = {key: value for key, value in node.environment.items() if key != "RINGMASTER_PROGRAM"}
    words = command_line(container, argv, node.working_folder, environment | {"HOME": "/tmp"})  # noqa: S108 - the container's
    return words.replace("docker run --detach", "docker run --rm", 1)


def _checked(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(variables or {})},
    )
    if done.returncode != 0:
        raise RingmasterError(
            f"{command[0]} … failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", exit_code=ExitCode.FAILED
        )
    return done.stdout
