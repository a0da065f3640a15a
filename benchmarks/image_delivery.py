"""The image from one node to two others: the role's registry and tunnels against `docker save | ssh | docker load`.

On a rehearsal cluster of its own (three nodes with engines on this machine), both started by Ansible as a user would,
in turn (A B A B …): the first delivery of an image of 524 MB in three layers, half of it compressible, and the next one
after its top layer of 5 MB has changed. The time that counts is that of the command minus that of the same command (for
the pipe: of an empty one) with nothing to do: Ansible's own time is not the delivery's.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lab import lab
from lab.base.place import Place
from lab.lab import Lab
from lab.nodes import spec
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT

_PLACE = Place(name="bench-image")
_MOST_ROUNDS = 2
_TIMEOUT_S = 300
_LAYERS = {"bottom": 400, "middle": 95, "top": 5}
_MAKE = """
import pathlib, random, subprocess, sys
folder = pathlib.Path("/var/tmp/bench"); folder.mkdir(exist_ok=True)
for name, mib, seed in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    content = random.Random(int(seed))
    half = 1 << 19
    (folder / name).write_bytes(b"".join(content.randbytes(half) + bytes(half) for _ in range(int(mib))))
lines = ["FROM scratch", *(f"ADD {name} /{name}" for name in sys.argv[1::3])]
(folder / "Dockerfile").write_text("\\n".join(lines))
print(subprocess.run(["docker", "build", "--quiet", folder], capture_output=True, text=True, check=True).stdout)
"""
_FORGET = "docker image ls --quiet | xargs --no-run-if-empty docker image rm --force; docker image prune --all --force"
_FIRST, _NEXT = "first delivery", "after a change of 5 MB on top"


def run(repetitions: int) -> None:
    """Measure, and print the medians of both ways for both deliveries, their spread and the ratios."""
    ways: dict[str, Callable[[Lab, str], float]] = {"registry and tunnels": _ours, "save | ssh | load": _by_pipe}
    seconds: dict[tuple[str, str], list[float]] = {(what, way): [] for what in (_FIRST, _NEXT) for way in ways}
    with _machines() as machines:
        for number in range(min(repetitions, _MOST_ROUNDS)):
            images = _make_images(machines, number)
            for way, deliver in ways.items():
                _forget(machines)
                for what, image in zip((_FIRST, _NEXT), images, strict=True):
                    seconds[what, way].append(deliver(machines, image))
                    print(f"  round {number + 1}: {what}, {way}: {seconds[what, way][-1]:.1f} s", flush=True)
    for what in (_FIRST, _NEXT):
        print(f"\n{what} to two nodes, seconds")
        for way in ways:
            values = seconds[what, way]
            print(f"  {way:22} median {statistics.median(values):6.1f}   from {min(values):.1f} to {max(values):.1f}")
        ours, pipe = (statistics.median(seconds[what, way]) for way in ways)
        print(f"  ratio of the medians   {ours / pipe:.2f}")


@contextmanager
def _machines() -> Iterator[Lab]:
    """Three nodes with engines that reach each other by SSH."""
    try:
        machines = lab.up(spec.lab(nodes=3, engine=True), _PLACE)
        _ansible("ansible-playbook", "playbooks/site.yml", "--tags", "ssh_mesh")
        yield machines
    finally:
        lab.down(_PLACE)


def _make_images(machines: Lab, number: int) -> list[str]:
    """Make an image on the first node, and one that differs in its top layer; return their IDs."""
    images = []
    for change in (0, 1):
        words = [
            str(one) for name, mib in _LAYERS.items() for one in (name, mib, 10 * number + change * (name == "top"))
        ]
        images.append(machines["node1"].run("python3", "-c", _MAKE, *words).split()[-1])
    return images


def _forget(machines: Lab) -> None:
    """Remove all images from all nodes but the first, which keeps its own, without a registry."""
    _ansible("ansible-playbook", "playbooks/reset.yml", "--tags", "train_image")
    for name in ("node2", "node3"):
        machines[name].run("sh", "-c", _FORGET)


def _ours(machines: Lab, image: str) -> float:
    words = ("ansible-playbook", "playbooks/site.yml", "--tags", "train_image", "-e", f"train_image_reference={image}")
    whole = _ansible(*words)
    _check(machines, image)
    return whole - _ansible(*words)


def _by_pipe(machines: Lab, image: str) -> float:
    words = ("ansible", "node2,node3", "-m", "ansible.builtin.shell", "-a")
    whole = _ansible(*words, f"bash -o pipefail -c 'ssh node1 sudo docker save {image} | sudo docker load'")
    _check(machines, image)
    return whole - _ansible(*words, "true")


def _check(machines: Lab, image: str) -> None:
    for node in machines.nodes.values():
        node.run("docker", "image", "inspect", image)


def _ansible(program: str, *words: str) -> float:
    """Run a command on the cluster; return how many seconds it took."""
    begun = time.monotonic()
    command: Sequence[str] = [str(ROOT / ".venv/bin" / program), "-i", str(_PLACE.inventory), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise RingmasterError(f"{program} {' '.join(words)[:80]}: {last}", exit_code=ExitCode.CLUSTER)
    return time.monotonic() - begun
