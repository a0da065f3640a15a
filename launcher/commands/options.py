"""`make train`'s variables as the user typed them, and the request they make."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.job import program
from launcher.job.folder import Earlier
from launcher.job.plan import TUNABLE
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.on_node.rank import parse_secrets
from trainer.config import run_config as trainer_config


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
    arguments = split_arguments(options.args)
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


def switch(name: str, text: str) -> bool:
    """A variable that is 1 or 0; empty is 0."""
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"


def split_arguments(text: str) -> tuple[str, ...]:
    """Split `ARGS` as POSIX words; nothing is expanded, every byte kept."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise RingmasterError(f"ARGS: {str(error).lower()} in {text!r}; quote as in a shell") from error


def parse_nodes(text: str) -> int | None:
    """`NODES`: a whole number from 1 up; empty is the default."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise RingmasterError(f"NODES={text}: must be a whole number from 1 up to the nodes in the inventory")
    return int(text)


def parse_gpus(text: str) -> str:
    """`GPUS`: `all`, a count, or device ids with commas; empty is all."""
    if not text:
        return "all"
    if not re.fullmatch(r"all|[0-9]{1,4}|\w[\w-]*(,\w[\w-]*)*,?", text):
        raise RingmasterError(f"GPUS={text}: must be 'all', a count per node, or device ids such as 0,2 (one: 2,)")
    return text


def parse_ranks(text: str) -> int | None:
    """`RANKS`: a whole number from 1 up; empty is one for each GPU, or as the inventory says."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
        raise RingmasterError(f"RANKS={text}: must be a whole number from 1 up, the processes on each node")
    return int(text)
