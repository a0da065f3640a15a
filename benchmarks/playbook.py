"""How long `site.yml` takes on nodes that are already provisioned: our settings against Ansible's own.

Two labs: four nodes with everything on them, and sixteen that have only what needs no engine. The same playbook is run
in turn under `ansible.cfg` and under Ansible's defaults (no configuration file), and the second lab's run is compared
with the same roles on the first. Making the labs (some minutes) is not counted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lab import lab
from lab.base.place import Place
from lab.nodes import spec
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT

_FEW, _MANY = 4, 16
_WITHOUT_ENGINE = ("--skip-tags", "docker_engine,train_image")
_TIMEOUT_S = 1800


def run(repetitions: int) -> None:
    """Measure, and print medians, ratios, and the tasks that touch a converged node."""
    few, many = Place(name="bench-few"), Place(name="bench-many")
    try:
        for place, nodes in ((few, _FEW), (many, _MANY)):
            lab.up(spec.lab(nodes=nodes), place)
        _converge(few)
        _converge(many, *_WITHOUT_ENGINE)
        _compare(
            f"{_FEW} nodes, everything",
            {"ansible.cfg": lambda: _seconds(few), "Ansible's defaults": lambda: _seconds(few, defaults=True)},
            repetitions,
        )
        _compare(
            "without the engine's roles",
            {
                f"{_MANY} nodes": lambda: _seconds(many, *_WITHOUT_ENGINE),
                f"{_FEW} nodes": lambda: _seconds(few, *_WITHOUT_ENGINE),
            },
            repetitions,
        )
        _compare(
            "what of that is the gathering of facts (playbook run with ANSIBLE_GATHERING=explicit)",
            {
                "ansible.cfg": lambda: _seconds(few),
                "defaults, explicit": lambda: _seconds(few, defaults=True, ANSIBLE_GATHERING="explicit"),
            },
            repetitions,
        )
        _show_touches(few)
    finally:
        for place in (few, many):
            lab.down(place)


def _converge(place: Place, *words: str) -> None:
    """Run until nothing changes: twice."""
    for _ in range(2):
        output = _playbook(place, *words)
    if any("changed=0" not in line for line in output.splitlines() if " ok=" in line):
        raise RingmasterError(f"the second run on {place.name} still changed something", exit_code=ExitCode.FAILED)


def _compare(title: str, ways: dict[str, Callable[[], float]], repetitions: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, measure in ways.items():
            seconds[name].append(measure())
    print(f"\nsite.yml on converged nodes, seconds, {title} (n = {repetitions})")
    for name, values in seconds.items():
        print(f"  {name:20} median {statistics.median(values):6.2f}   from {min(values):.2f} to {max(values):.2f}")
    first, second = (statistics.median(values) for values in seconds.values())
    print(f"  ratio of the medians {first / second:.3f}", flush=True)


def _seconds(place: Place, *words: str, defaults: bool = False, **environment: str) -> float:
    started = time.monotonic()
    _playbook(place, *words, defaults=defaults, **environment)
    return time.monotonic() - started


def _playbook(place: Place, *words: str, defaults: bool = False, **environment: str) -> str:
    """Run site.yml; with `defaults` under an empty configuration file."""
    if defaults:
        environment["ANSIBLE_CONFIG"] = str(Path(__file__).with_name("ansible-defaults.cfg"))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", place.inventory, "playbooks/site.yml", *words],
        cwd=ROOT, env={**os.environ, **environment}, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise RingmasterError("site.yml failed, see above", exit_code=ExitCode.FAILED)
    return done.stdout


def _show_touches(place: Place) -> None:
    """Print the tasks that reach a node on which nothing is to change, with the seconds that each takes per host."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "touches"
        record.touch()
        callbacks = str(ROOT / "benchmarks" / "callbacks")
        _playbook(
            place,
            RINGMASTER_TOUCHES=str(record), ANSIBLE_CALLBACK_PLUGINS=callbacks, ANSIBLE_CALLBACKS_ENABLED="touches",
        )  # fmt: skip
        seen = [json.loads(line) for line in record.read_text().splitlines()]
    tasks = dict.fromkeys(one["task"] for one in seen)
    print(f"\ntasks that touch a converged node: {len(tasks)} (seconds, mean over {_FEW} hosts at once)")
    for task in tasks:
        print(f"  {statistics.mean(one['seconds'] for one in seen if one['task'] == task):6.2f}  {task}")
