"""The image to one node and to seven, along the chain: does the time grow with the number of nodes?

On a rehearsal cluster of its own (a source and seven others, with engines, on this machine), whose nodes all send at
100 Mbit/s. In turn: to the second node alone, and to all seven (eight nodes with the source). The time is the longest
that a node says its fetch took, from the first question to the image in its engine: what Ansible takes besides is not
the delivery's.
"""

import re
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lab import lab
from lab.base.place import Place
from lab.faults import links
from lab.lab import Lab
from lab.nodes import spec
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT

_PLACE = Place(name="bench-chain")
_NODES = 8
_RATE = "100mbit"
_MIB = 60
_TIMEOUT_S = 900
_MAKE = f"""
set -eu
cd "$(mktemp -d)"
for part in a b c; do head -c {_MIB // 3}M /dev/urandom >$part; done
printf 'FROM scratch\\nADD a /a\\nADD b /b\\nADD c /c\\n' >Dockerfile
docker build --quiet .
rm -r "$PWD"
"""
_FORGET = "docker image ls --quiet | xargs --no-run-if-empty docker image rm --force"


def run(repetitions: int) -> None:
    """Measure, and print the medians, their spread and their ratio."""
    seconds: dict[int, list[float]] = {1: [], _NODES - 1: []}
    with _machines() as machines:
        for number in range(repetitions):
            for count, values in seconds.items():
                values.append(_deliver(machines, count))
                print(f"  round {number + 1}: to {count}: {values[-1]:.1f} s", flush=True)
    print(f"\n{_MIB} MiB over {_RATE}, seconds")
    for count, values in seconds.items():
        print(f"  to {count}: median {statistics.median(values):.1f}   from {min(values):.1f} to {max(values):.1f}")
    one, all_ = (statistics.median(values) for values in seconds.values())
    print(f"  ratio of the medians {all_ / one:.2f}")


@contextmanager
def _machines() -> Iterator[Lab]:
    """Nodes with engines that reach each other by SSH, over slow links."""
    try:
        machines = lab.up(spec.lab(nodes=_NODES, engine=True), _PLACE)
        _ansible("--tags", "ssh_mesh")
        with ExitStack() as shapes:
            for node in machines.nodes.values():
                shapes.enter_context(links.Shape(node, rate=_RATE))
            yield machines
    finally:
        lab.down(_PLACE)


def _deliver(machines: Lab, count: int) -> float:
    """Make an image on the first node, deliver it to so many others, and return how long the last of them took."""
    names = list(machines.nodes)[: count + 1]
    image = machines[names[0]].run("sh", "-c", _MAKE).split()[-1]
    said = _ansible("--tags", "train_image", "--limit", ",".join(names), "-e", f"train_image_reference={image}")
    for name in names:
        machines[name].run("docker", "image", "inspect", image)
        machines[name].run("sh", "-c", _FORGET)
    return max(float(one) for one in re.findall(r"node\d+ in (\d+(?:\.\d+)?) s", said))


def _ansible(*words: str) -> str:
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(_PLACE.inventory), "playbooks/site.yml", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise RingmasterError(f"{' '.join(words)[:80]}: {last}", exit_code=ExitCode.CLUSTER)
    return done.stdout
