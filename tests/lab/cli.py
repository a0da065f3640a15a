"""`python -m tests.lab`: bring the lab up and down, look at it, break it and mend it."""

import argparse
import dataclasses
import shutil
from collections.abc import Sequence
from typing import Any

from docker.errors import APIError

from launcher.cli import leave_with
from launcher.errors import ExitCode, RingmasterError
from tests.lab import engine, faults, gpus, image, lab, links, registry, spec
from tests.lab.fault import Fault
from tests.lab.node import Node
from tests.lab.place import DEFAULT_NAME, ENGINE_RECORD, STATE, Place
from tests.lab.say import say

FAULTS: dict[str, type[Fault]] = {
    "kill": faults.Kill,
    "freeze": faults.Freeze,
    "reboot": faults.Reboot,
    "partition": faults.Partition,
    "cut-ssh": faults.CutSsh,
    "fill-disk": faults.FillDisk,
    "limit-memory": faults.LimitMemory,
    "pin": faults.Pin,
    "clock": faults.ClockOffset,
    "shape": links.Shape,
    "missing-gpu": gpus.MissingGpu,
    "old-driver": gpus.OldDriver,
    "no-driver": gpus.NoDriver,
    "busy-gpu": gpus.BusyGpu,
    "xid": gpus.Xid,
}


def _switch(text: str) -> bool:
    """1 or nothing, as make hands its variables on; a flag alone means 1."""
    if text not in {"", "0", "1"}:
        raise argparse.ArgumentTypeError(f"'{text}' is neither 1 nor 0")
    return text == "1"


_SWITCH: dict[str, Any] = {"type": _switch, "nargs": "?", "const": True, "default": False, "metavar": "1"}
_EPILOG = """\
examples
  python -m tests.lab up --nodes 3 --engine --gpus 2
  python -m tests.lab up --nodes 3 --node node2:mtu=1300,ssh_port=2222 --node node3:interface=ens5
  python -m tests.lab partition node1 node2              and with --undo: mended again
  python -m tests.lab shape node1 --rate 100mbit
  ssh -F inventory/lab.ssh_config node1
"""


def main(words: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(words)
    leave_with(lambda: _run(options), debug=options.debug)


def _run(options: argparse.Namespace) -> int:
    try:
        options.verb(options)
    except KeyboardInterrupt:
        raise RingmasterError(
            "stopped; `make lab` again goes on, `make lab-down` removes what there is", exit_code=ExitCode.INTERRUPTED
        ) from None
    except APIError as error:
        raise RingmasterError(f"the Docker engine: {error.explanation or error}", exit_code=ExitCode.CLUSTER) from error
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab",
        description="A rehearsal cluster on this machine: containers that boot like rented machines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="which lab of this checkout (tests may have one of theirs)"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_up(verbs)
    down = verbs.add_parser("down", help="remove the lab, its files, its images")
    down.add_argument("--all", action="store_true", help="every lab of this checkout, and the copies of the images")
    down.add_argument("--purge", **_SWITCH, help="also the Docker engine, if the lab installed it")
    down.set_defaults(verb=_down)
    verbs.add_parser("status", help="the nodes, what they are, how they are").set_defaults(verb=_status)
    renew = verbs.add_parser("renew", help="make nodes anew, as they were on their first day")
    renew.add_argument("nodes", nargs="+", metavar="NODE")
    renew.set_defaults(verb=_renew)
    gpu = verbs.add_parser("gpus", help="set what a node's stand-in nvidia-smi shows")
    gpu.add_argument("node", metavar="NODE")
    gpu.add_argument("count", type=int, help="how many; 0 takes nvidia-smi away")
    gpu.add_argument("--model", default="", help="as nvidia-smi names it")
    gpu.add_argument("--driver", default="", help="version, such as 580.95.05")
    gpu.add_argument("--toolkit", choices=("yes", "no"), help="is the hook there that makes the engine take --gpus?")
    gpu.set_defaults(verb=_gpus)
    for name, kind in FAULTS.items():
        _add_fault(verbs, name, kind)
    return parser


def _add_up(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = verbs.add_parser("up", help="start the lab, or make the one that is up what is asked for")
    up.add_argument("--nodes", default="", help="how many; default 3")
    up.add_argument("--gpus", default="", help="stand-in GPUs per node; default 0")
    up.add_argument("--engine", **_SWITCH, help="with the Docker engine already on the nodes")
    up.add_argument("--unequal", **_SWITCH, help="nodes that differ: interface names, ports, MTU, clock, …")
    up.add_argument("--registry", **_SWITCH, help="with an image registry beside the nodes")
    up.add_argument(
        "--node", action="append", default=[], metavar="NODE:KEY=VALUE,…",
        help=f"settings of one node: {', '.join(spec.SETTINGS)}",
    )  # fmt: skip
    up.set_defaults(verb=_up)


def _add_fault(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, kind: type[Fault]) -> None:
    text = " ".join((kind.__doc__ or "").split())
    parser = verbs.add_parser(name, help=text.partition(".")[0].lower(), description=text)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.type is Node:
            parser.add_argument(field.name, metavar="NODE")
        else:
            parser.add_argument(
                f"--{field.name.replace('_', '-')}", type=field.type, default=field.default, help=f"{field.default}"
            )
    parser.add_argument("--undo", action="store_true", help="take it back")
    parser.set_defaults(verb=_fault, kind=kind)


def _up(options: argparse.Namespace) -> None:
    place = Place(name=options.name)
    wanted = spec.lab(
        nodes=_number("NODES", options.nodes, 3),
        gpus=_number("GPUS", options.gpus, 0),
        engine=options.engine,
        unequal=options.unequal,
        registry=options.registry,
        overrides=options.node,
    )
    lab.up(wanted, place)
    _status(options)
    say(f"ready: ssh -F {place.ssh_config} node1   (inventory: {place.inventory})")


def _number(what: str, text: str, default: int) -> int:
    if text and not text.isdecimal():
        raise RingmasterError(f"{what}={text}: the lab takes a number")
    return int(text) if text else default


def _down(options: argparse.Namespace) -> None:
    names = {options.name}
    if options.all or options.purge:
        names |= {found.name for found in STATE.glob("*") if (found / "nodes").is_dir()}
    for name in sorted(names):
        lab.down(Place(name=name))
    if options.all:
        shutil.rmtree(image.CACHE, ignore_errors=True)
    if options.purge:
        engine.purge()
    elif ENGINE_RECORD.exists():
        say("the Docker engine that the lab installed stays; make lab-down PURGE=1 removes it")
    if STATE.is_dir() and not any(STATE.iterdir()):
        STATE.rmdir()


def _status(options: argparse.Namespace) -> None:
    place = Place(name=options.name)
    found = lab.find(place)
    plain = spec.NodeSpec(name="")
    for node in found.nodes.values():
        told = dataclasses.asdict(node.spec)
        traits = [f"{key}={value}" for key, value in told.items() if key != "name" and value != getattr(plain, key)]
        print(f"{node.name:8} {node.address:16} {node.state:10} {' '.join(traits) or 'bare'}")
    there = registry.find(engine.needed(), place)
    if there is not None:
        print(f"registry {there.address:27} push from this machine to {there.push}")


def _renew(options: argparse.Namespace) -> None:
    place = Place(name=options.name)
    found = lab.find(place)
    wanted = spec.LabSpec(
        nodes=tuple(node.spec for node in found.nodes.values()),
        registry=registry.find(engine.needed(), place) is not None,
    )
    for name in options.nodes:
        found[name]  # says which there are
    lab.up(wanted, place, renew=options.nodes)


def _gpus(options: argparse.Namespace) -> None:
    node = lab.find(Place(name=options.name))[options.node]
    gpus.set_gpus(node, count=options.count, model=options.model, driver=options.driver)
    if options.toolkit:
        gpus.set_toolkit(node, present=options.toolkit == "yes")


def _fault(options: argparse.Namespace) -> None:
    found = lab.find(Place(name=options.name))
    values = {
        field.name: found[getattr(options, field.name)] if field.type is Node else getattr(options, field.name)
        for field in dataclasses.fields(options.kind)
    }
    fault = options.kind(**values)
    if options.undo:
        fault.undo()
    else:
        fault.apply()
