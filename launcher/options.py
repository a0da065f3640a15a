"""`make train`'s variables as the user typed them, and the request they make."""

import os
from dataclasses import dataclass
from pathlib import Path

from launcher import program
from launcher.errors import RingmasterError
from launcher.job import Earlier
from launcher.plan import TUNABLE
from launcher.program import ROOT, Program
from launcher.rank import parse_secrets
from launcher.request import Request, parse_gpus, parse_nodes, parse_ranks
from trainer import config as trainer_config


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Empty is the default of each."""

    nodes: str = ""
    gpus: str = ""
    ranks: str = ""
    script: str = ""
    args: str = ""
    data: str = ""
    name: str = ""
    resume: str = ""
    inventory: str = ""
    limit: str = ""
    launch_style: str = ""
    secrets: str = ""
    dry_run: str = ""
    detach: str = ""


def to_request(options: TrainOptions, from_job: Earlier | None) -> Request:
    """Check the options' form; what `from_job` was started with holds unless given anew."""
    script, data = options.script, options.data
    arguments = program.split_arguments(options.args)
    if from_job:
        script = script or from_job.script or ""
        data = data or from_job.data or ""
        arguments = arguments or from_job.arguments
    secrets = _secrets(options.secrets) if options.secrets else None
    copy = _existing(data) if data else None
    if secrets and copy and secrets.resolve().is_relative_to(copy.resolve()):
        raise RingmasterError(f"SECRETS: {options.secrets} lies in DATA, which stays on the nodes; move it elsewhere")
    style = options.launch_style
    if from_job and not style and not options.script:
        style = "1" if from_job.launch_style else "0"
    if style not in {"", "0", "1"}:
        raise RingmasterError(f"LAUNCH_STYLE={style}: must be 1 (the script parses --local-rank) or 0")
    ranks = parse_ranks(options.ranks)
    if from_job and not options.script:
        ranks = ranks or from_job.ranks
    return Request(
        nodes=parse_nodes(options.nodes),
        gpus=parse_gpus(options.gpus),
        ranks=ranks,
        strategy="" if script else trainer_config.strategy(arguments),
        program=_program(script, arguments, style),
        data=copy,
        secrets=secrets,
        environment={key: value for key, value in os.environ.items() if key in TUNABLE},
    )


def _program(script: str, arguments: tuple[str, ...], launch_style: str) -> Program:
    if not script:
        return program.bundled(arguments)
    return program.user_script(Path(script), arguments, launch_style=launch_style)


def _existing(data: str) -> Path:
    path = Path(data).expanduser().absolute()
    if not path.exists():
        raise RingmasterError(
            f"DATA: {data}: no such file or folder; three ways to the data: the right path of your copy, "
            "DATA left away to fetch it, or ARGS='--dataset synthetic'"
        )
    return path


def _secrets(given: str) -> Path:
    """The secrets' file, if it is one; what stands in it is never shown."""
    path = Path(given).expanduser().absolute()
    try:
        parse_secrets(path.read_bytes())
    except OSError as error:
        raise RingmasterError(f"SECRETS: {given}: can't be read ({error.strerror})") from error
    except ValueError as error:
        raise RingmasterError(f"SECRETS: {given}: {error}") from error
    return path


def inventory_path(given: str) -> Path:
    """The inventory the user named, else their own, else this machine as a cluster."""
    if given:
        return Path(given)
    hosts = ROOT / "inventory" / "hosts.yml"
    return hosts if hosts.exists() else ROOT / "inventory" / "local.yml"


def switch(name: str, text: str) -> bool:
    """A variable that is 1 or 0; empty is 0."""
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"
