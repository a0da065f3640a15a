"""The commands of `python -m lab`, each with its options."""

import argparse
import contextlib
import dataclasses
import shlex
import shutil

from lab import lab, registry
from lab.base.place import ENGINE_RECORD, STATE, Place
from lab.base.say import say
from lab.faults.fault import Fault
from lab.host import engine
from lab.image import store
from lab.nodes import gpus as stand_ins
from lab.nodes import spec
from lab.nodes.node import Node
from launcher.base.errors import RingmasterError
from launcher.base.values import switch


def up(options: argparse.Namespace) -> None:
    """Start the lab, or change the one that is up, and show it."""
    place = _place(options)
    wanted = spec.lab(
        nodes=_number("NODES", options.nodes, 3),
        gpus=_number("GPUS", options.gpus, 0),
        engine=switch("ENGINE", options.engine),
        unequal=switch("UNEQUAL", options.unequal),
        registry=switch("REGISTRY", options.registry),
        jump=switch("JUMP", options.jump),
        overrides=options.node,
    )
    lab.up(wanted, place)
    status(options)
    say(f"ready: ssh -F {shlex.quote(str(place.ssh_config))} node1   (inventory: {place.inventory})")


def _place(options: argparse.Namespace) -> Place:
    return Place() if options.name is None else Place(name=options.name)


def _number(what: str, text: str, default: int) -> int:
    if text and not text.isdecimal():
        raise RingmasterError(f"{what}={text}: the lab takes a number")
    return int(text) if text else default


def down(options: argparse.Namespace) -> None:
    """Remove labs, and what else was asked for."""
    purge = switch("PURGE", options.purge)
    one = _place(options)
    every = options.name is None or purge
    with contextlib.ExitStack() as each:  # the others also if one fails
        for place in {one, *(lab.existing(engine.connect()) if every else ())}:
            each.callback(lab.down, place)
    if options.all:
        shutil.rmtree(store.CACHE, ignore_errors=True)
    if purge:
        engine.purge()
    elif ENGINE_RECORD.exists():
        say("the Docker engine that the lab installed stays; make lab-down PURGE=1 removes it")
    if STATE.is_dir() and not any(STATE.iterdir()):
        STATE.rmdir()


def status(options: argparse.Namespace) -> None:
    """Print a line for each node, and for the registry."""
    place = _place(options)
    current = lab.find(place)
    plain = spec.NodeSpec(name="")
    for node in current.nodes.values():
        shown = stand_ins.read(node)  # what is true now, which may differ from the spec
        toolkit = node.read_settings()["TOOLKIT"] == "1"
        now = dataclasses.replace(
            node.spec, gpus=shown["count"], gpu_model=shown["model"], driver=shown["driver"], toolkit=toolkit
        )
        settings = dataclasses.asdict(now)
        traits = [f"{key}={value}" for key, value in settings.items() if key != "name" and value != getattr(plain, key)]
        traits += stand_ins.misbehaviour(shown)
        print(f"{node.name:8} {node.address:16} {node.state:10} {' '.join(traits) or 'bare'}")
    running = registry.find(engine.needed(), place)
    if running is not None:
        print(f"registry {running.address:27} push from this machine to {running.push}")


def renew(options: argparse.Namespace) -> None:
    """Make nodes anew."""
    place = _place(options)
    current = lab.find(place)
    wanted = spec.LabSpec(
        nodes=tuple(node.spec for node in current.nodes.values()),
        registry=registry.find(engine.needed(), place) is not None,
    )
    for name in options.nodes:
        current[name]  # names those that exist, if this one doesn't
    lab.up(wanted, place, renew=options.nodes)


def gpus(options: argparse.Namespace) -> None:
    """Set what a node's GPU stand-ins show."""
    node = lab.find(_place(options))[options.node]
    stand_ins.set_gpus(node, count=options.count, model=options.model, driver=options.driver)
    if options.toolkit:
        stand_ins.set_toolkit(node, present=options.toolkit == "yes")


def fault(options: argparse.Namespace) -> None:
    """Apply a fault, or undo it."""
    current = lab.find(_place(options))
    values = {
        field.name: current[getattr(options, field.name)] if field.type is Node else getattr(options, field.name)
        for field in dataclasses.fields(options.kind)
    }
    wanted: Fault = options.kind(**values)
    if options.undo:
        wanted.undo()
    else:
        wanted.start()
