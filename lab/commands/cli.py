"""`python -m lab`: bring the lab up and down, look at it, break it and repair it."""

import argparse
import dataclasses
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from lab.commands import verbs
from lab.faults import gpu_faults, links, node_faults
from lab.faults.fault import Fault
from lab.nodes import spec
from lab.nodes.node import Node
from launcher.base.errors import ExitCode, RingmasterError
from launcher.commands.cli import leave_with

FAULTS: dict[str, type[Fault]] = {
    "kill": node_faults.Kill,
    "freeze": node_faults.Freeze,
    "reboot": node_faults.Reboot,
    "partition": node_faults.Partition,
    "cut-ssh": node_faults.CutSsh,
    "fill-disk": node_faults.FillDisk,
    "limit-memory": node_faults.LimitMemory,
    "pin": node_faults.Pin,
    "clock": node_faults.ClockOffset,
    "shape": links.Shape,
    "missing-gpu": gpu_faults.MissingGpu,
    "old-driver": gpu_faults.OldDriver,
    "no-driver": gpu_faults.NoDriver,
    "busy-gpu": gpu_faults.BusyGpu,
    "xid": gpu_faults.Xid,
}


# 1 or empty, as make passes its variables on; the flag alone means 1.
_SWITCH: dict[str, Any] = {"nargs": "?", "const": "1", "default": "", "metavar": "1"}
_GOES_ON = "`make lab` continues, `make lab-down` removes what is there"
_EPILOG = """\
examples
  python -m lab up --nodes 3 --engine --gpus 2
  python -m lab up --nodes 3 --node node2:mtu=1300,ssh_port=2222 --node node3:interface=ens5
  python -m lab partition node1 node2              and with --undo: connected again
  python -m lab shape node1 --rate 100mbit
  ssh -F inventory/lab.ssh_config node1
"""


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every command here does: in one line, with the closing line after it."""

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing the usage."""
        raise RingmasterError(f"{message}; `{self.prog} --help` shows what is possible")


def main(words: Sequence[str] | None = None) -> None:
    """Run a command line and end the process with its exit code."""
    arguments = sys.argv[1:] if words is None else list(words)
    leave_with(lambda: _run(arguments), debug="--debug" in arguments)


def _run(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _terminated)
    try:
        options = _parser().parse_args(words)
        options.verb(options)
    except KeyboardInterrupt:
        raise RingmasterError(f"stopped; {_GOES_ON}", exit_code=ExitCode.INTERRUPTED) from None
    except subprocess.TimeoutExpired as error:
        raise RingmasterError(
            f"`{error.cmd[0]}` on this machine did not end in {error.timeout:.0f} s; {_GOES_ON}",
            exit_code=ExitCode.CLUSTER,
        ) from error
    except (DockerException, RequestException) as error:
        reason = error.explanation if isinstance(error, APIError) and error.explanation else error
        raise RingmasterError(f"the Docker engine: {reason}; {_GOES_ON}", exit_code=ExitCode.CLUSTER) from error
    return 0


def _terminated(_signum: int, _frame: object) -> NoReturn:
    raise RingmasterError(f"stopped by SIGTERM; {_GOES_ON}", exit_code=ExitCode.TERMINATED)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m lab",
        description="A rehearsal cluster on this machine: containers that boot like rented machines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--name", help="which lab of this checkout; default: `lab` (down: all of them); that of the tests is `test`"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_up(commands)
    down = commands.add_parser(
        "down", help="remove all labs of this checkout (or that of --name) with their files and images"
    )
    down.add_argument("--all", action="store_true", help="also remove the copies of the images in the checkout")
    down.add_argument("--purge", **_SWITCH, help="also remove the Docker engine, if the lab installed it")
    down.set_defaults(verb=verbs.down)
    commands.add_parser("status", help="show the nodes: their settings and their state").set_defaults(verb=verbs.status)
    renew = commands.add_parser("renew", help="make nodes anew, as they were at their first boot")
    renew.add_argument("nodes", nargs="+", metavar="NODE")
    renew.set_defaults(verb=verbs.renew)
    gpu = commands.add_parser("gpus", help="set the GPUs that a node's stand-in nvidia-smi shows")
    gpu.add_argument("node", metavar="NODE")
    gpu.add_argument("count", type=int, help="how many; 0 removes nvidia-smi")
    gpu.add_argument("--model", default="", help="the name that nvidia-smi shows")
    gpu.add_argument("--driver", default="", help="version, such as 580.95.05")
    gpu.add_argument(
        "--toolkit", choices=("yes", "no"), help="whether the hook that makes the engine accept --gpus is there"
    )
    gpu.set_defaults(verb=verbs.gpus)
    for name, kind in FAULTS.items():
        _add_fault(commands, name, kind)
    return parser


def _add_up(commands: "argparse._SubParsersAction[_Parser]") -> None:
    settings = "".join(f"\n  {name:17} {meaning}" for name, meaning in spec.SETTINGS.items())
    up = commands.add_parser(
        "up", help="start the lab, or change the one that is up",
        epilog=f"settings of a node (1 or 0 for yes or no){settings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    up.add_argument("--nodes", default="", help="how many; default 3")
    up.add_argument("--gpus", default="", help="stand-in GPUs per node; default 0")
    up.add_argument("--engine", **_SWITCH, help="make nodes that already have the Docker engine")
    up.add_argument("--unequal", **_SWITCH, help="make nodes that differ: interface names, ports, MTU, clock, …")
    up.add_argument("--jump", **_SWITCH, help="let the operator reach the nodes through the last one only")
    up.add_argument("--registry", **_SWITCH, help="start an image registry beside the nodes")
    up.add_argument(
        "--node", action="append", default=[], metavar="NODE:KEY=VALUE,…",
        help="settings of one node, see below; may be repeated for other nodes",
    )  # fmt: skip
    up.set_defaults(verb=verbs.up)


def _add_fault(commands: "argparse._SubParsersAction[_Parser]", name: str, kind: type[Fault]) -> None:
    text = " ".join((kind.__doc__ or "").split())
    parser = commands.add_parser(name, help=text.partition(". ")[0].rstrip("."), description=text)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.type is Node:
            parser.add_argument(field.name, metavar="NODE")
        else:
            parser.add_argument(
                f"--{field.name.replace('_', '-')}", type=field.type, default=field.default,
                help=f"{field.metadata['help']}; default {field.default}",
            )  # fmt: skip
    parser.add_argument("--undo", action="store_true", help="take it back")
    parser.set_defaults(verb=verbs.fault, kind=kind)
