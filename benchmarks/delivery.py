"""The image to one node and to eight, along the chain of relays: does the time grow with the number of nodes?

On a rehearsal cluster of its own: a node that has the image and eight others, with engines, all of which send at the
same slow rate, so that a node's card is the bound and not the cores that they share. In turn: to one node, to all
eight, to all eight again after the top layer has changed, and to all eight in the plain way, each fetching for itself
(`docker save | ssh | docker load`).
"""

import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from benchmarks.result import Result, Row, ratio
from lab import lab
from lab.base.place import Place
from lab.faults import links
from lab.lab import Lab
from lab.nodes import spec
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT

_PLACE = Place(name="bench-chain")
_OTHERS = 8
_RATE = "25mbit"
_LAYERS, _LAYER_MIB, _TOP_MIB = 15, 5, 5
_MIB = _LAYERS * _LAYER_MIB + _TOP_MIB
_MOST = 1.25
_REPETITIONS = 3
_TIMEOUT_S = 1800
_TOOK = re.compile(r"\btook_s: (\d+(?:\.\d+)?)$", re.MULTILINE)
"""How long a node's fetch took, in what `ansible-playbook -v` prints."""

# With the word `top`, only the image's last layer is another than before.
_MAKE = f"""
set -eu
mkdir -p /var/tmp/bench-image
cd /var/tmp/bench-image
parts=$(seq {_LAYERS})
[ "${{1:-}}" = top ] || for part in $parts; do head -c {_LAYER_MIB}M /dev/urandom >"part$part"; done
head -c {_TOP_MIB}M /dev/urandom >top
{{
    echo FROM scratch
    for part in $parts; do echo "ADD part$part /"; done
    echo ADD top /
}} >Dockerfile
docker build --quiet .
"""
_FORGET = "docker image ls --quiet | sort --unique | xargs --no-run-if-empty docker image rm --force"
_ONE, _ALL = "along the chain, to one node", f"along the chain, to {_OTHERS} nodes"
_TOP = f"{_ALL}, after a change of {_TOP_MIB} MiB on top"
_PIPES = f"`docker save | ssh | docker load`, to {_OTHERS} nodes at once"
_PLAYBOOK = "{}: the whole playbook"
_PIPE = "set -o pipefail; ssh {source} sudo docker save {image} | sudo docker load"


def measure(quick: bool) -> Result:
    """Return the seconds of each way.

    Args:
        quick: measure each once.

    Raises:
        RingmasterError: a delivery fails, on whatever node.
    """
    seconds: dict[str, list[float]] = {
        label: [] for label in (_ONE, _ALL, _TOP, _PIPES, *(_PLAYBOOK.format(way) for way in (_ONE, _ALL)))
    }

    def keep(label: str, value: float) -> None:
        seconds[label].append(value)
        print(f"  {label}: {value:.1f} s", flush=True)

    with _machines() as machines:
        _, *others = machines.nodes
        for _ in range(1 if quick else _REPETITIONS):
            for label, names in ((_ONE, others[:1]), (_ALL, others)):
                _forget(machines, machines.nodes)
                fetch, playbook = _along_the_chain(machines, _make(machines), names)
                keep(label, fetch)
                keep(_PLAYBOOK.format(label), playbook)
            image = _make(machines, "top")
            keep(_TOP, _along_the_chain(machines, image, others)[0])
        _forget(machines, others)
        keep(_PIPES, _by_pipes(machines, image, others))  # once: it takes minutes, and nothing is promised of it
    return result(seconds)


def result(seconds: Mapping[str, Sequence[float]]) -> Result:
    """Return the table of what was measured."""
    rows = {label: Row(label=label, unit="s", values=tuple(values)) for label, values in seconds.items()}
    whole = [rows[_PLAYBOOK.format(label)] for label in (_ALL, _ONE)]
    return Result(
        name="delivery",
        title="Delivering the image",
        command="make bench ONLY=delivery",
        rows=tuple(rows.values()),
        ratios=(
            ratio(f"along the chain, {_OTHERS} nodes / one", rows[_ALL], rows[_ONE], most=_MOST),
            ratio(f"the playbook, {_OTHERS} nodes / one", *whole),
            ratio(f"{_OTHERS} nodes, `docker save | ssh | docker load` / along the chain", rows[_PIPES], rows[_ALL]),
        ),
        notes=(
            f"An image of {_MIB} MiB that can't be compressed, in {_LAYERS + 1} layers, from one node to others. All "
            f"are containers on this machine, and each sends at {_RATE.removesuffix('mbit')} Mbit/s: with faster cards "
            "or few large layers, to be unpacked at the end, the bound would be the cores that "
            f"{_OTHERS + 1} engines share.",
            "Along the chain: the longest that a node's fetch took, from the first question to the image in its "
            "engine. The playbook (`--tags train_image`) also looks at the nodes, compresses the image on the first "
            "and tidies up.",
        ),
    )


def slowest(said: str, nodes: int) -> float:
    """Return the seconds that the slowest of so many nodes took to fetch the image, from the playbook's output.

    Raises:
        RingmasterError: another number of nodes fetched it.
    """
    seconds = [float(one) for one in _TOOK.findall(said)]
    if len(seconds) != nodes:
        raise RingmasterError(f"{len(seconds)} nodes fetched the image, not {nodes}", exit_code=ExitCode.FAILED)
    return max(seconds)


@contextmanager
def _machines() -> Iterator[Lab]:
    """Nodes with engines that reach each other by SSH, over slow links."""
    try:
        machines = lab.up(spec.lab(nodes=_OTHERS + 1, engine=True), _PLACE)
        _ansible("--tags", "ssh_mesh")
        with ExitStack() as shapes:
            for node in machines.nodes.values():
                shapes.enter_context(links.Shape(node, rate=_RATE))
            yield machines
    finally:
        lab.down(_PLACE)


def _make(machines: Lab, what: str = "") -> str:
    """Make an image on the first node, or one whose top alone differs from the last; return its ID."""
    source = next(iter(machines.nodes.values()))
    return source.run("sh", "-c", _MAKE, "sh", what).split()[-1]


def _along_the_chain(machines: Lab, image: str, names: Sequence[str]) -> tuple[float, float]:
    """Deliver an image from the first node; return the seconds of the slowest fetch, and those of the playbook."""
    begun = time.monotonic()
    chosen = ",".join((next(iter(machines.nodes)), *names))
    said = _ansible("-v", "--tags", "train_image", "--limit", chosen, "-e", f"train_image_reference={image}")
    whole = time.monotonic() - begun
    _check(machines, image, names)
    return slowest(said, len(names)), whole


def _by_pipes(machines: Lab, image: str, names: Sequence[str]) -> float:
    """Have all nodes fetch an image from the first, at once; return the seconds until the last has it."""
    line = _PIPE.format(source=next(iter(machines.nodes)), image=image)

    def fetch(name: str) -> None:
        done = machines.ssh(name, f"bash -c '{line}'", timeout=_TIMEOUT_S)
        if done.returncode:
            raise RingmasterError(f"{name}: {line}: {done.stderr.strip()[-200:]}", exit_code=ExitCode.FAILED)

    begun = time.monotonic()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(fetch, names))
    seconds = time.monotonic() - begun
    _check(machines, image, names)
    return seconds


def _check(machines: Lab, image: str, names: Sequence[str]) -> None:
    for name in names:
        machines[name].run("docker", "image", "inspect", image)


def _forget(machines: Lab, names: Iterable[str]) -> None:
    for name in names:
        machines[name].run("sh", "-c", _FORGET)


def _ansible(*words: str) -> str:
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(_PLACE.inventory), "playbooks/site.yml", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise RingmasterError(f"{' '.join(words)[:80]}: {last}", exit_code=ExitCode.CLUSTER)
    return done.stdout
