"""`make train`'s variables as the user typed them, and the request that they become."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from launcher.base import caller
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.values import size, switch
from launcher.commands.program_options import choose
from launcher.inventory import rank_variables
from launcher.job import rank_python
from launcher.job.environment import TUNABLE
from launcher.job.folder import Earlier
from launcher.job.launch_style import STYLES
from launcher.job.placeholders import names_in
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.on_node.rank import parse_secrets
from trainer.config import run_config as trainer_config
from trainer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `make train`, a field for each line of options.txt; an empty one is its default."""

    nodes: str = ""
    gpus: str = ""
    ranks: str = ""
    script: str = ""
    module: str = ""
    code: str = ""
    args: str = ""
    data: str = ""
    name: str = ""
    resume: str = ""
    inventory: str = ""
    limit: str = ""
    launch_style: str = ""
    placeholders: str = ""
    secrets: str = ""
    dry_run: str = ""
    detach: str = ""
    ask: str = ""
    env: str = ""
    nccl_debug: str = ""
    rank_python: str = ""
    job: str = ""
    work_limit: str = ""


def to_request(options: TrainOptions, from_job: Earlier | None) -> Request:
    """Check the options' form and return the request; what they leave open is as `from_job` was started.

    Raises:
        RingmasterError: a value can't be right, or a file that it names can't be used.
    """
    data = options.data
    arguments = split_arguments(options.args)
    variables = parse_variables(options.env)
    if from_job:
        data = data or from_job.data or ""
        arguments = arguments or from_job.arguments
        variables = variables or dict(from_job.variables)
    secrets = _secrets(options.secrets) if options.secrets else None
    style, another = options.launch_style, options.script or options.module
    if from_job and not style and not another:
        style = from_job.launch_style or "0"
    style = parse_launch_style(style)
    program = choose(options.script, options.module, options.code, from_job, arguments, style)
    copy = _existing(data, bundled=program.bundled) if data else None
    if secrets and copy and secrets.resolve().is_relative_to(copy.resolve()):
        raise RingmasterError(f"SECRETS: {options.secrets} lies in DATA, which stays on the nodes; move it elsewhere")
    ranks = parse_ranks(options.ranks)
    if from_job and not another:
        ranks = ranks or from_job.ranks
    nodes = parse_nodes(options.nodes)
    if nodes is None and program.spawn and program.spawn.alone:
        nodes = 1  # on each of two it would train for itself; the plan's notes say so
    return Request(
        nodes=nodes,
        gpus=parse_gpus(options.gpus),
        ranks=ranks,
        strategy=_strategy(arguments) if program.bundled else "",
        program=program,
        placeholders=_placeholders(options, from_job, program),
        data=copy,
        secrets=secrets,
        python=_python(options, from_job),
        environment={key: value for key, value in os.environ.items() if key in TUNABLE},
        variables=variables | _nccl_debug(options),
        work_limit=size("WORK_LIMIT", options.work_limit),
    )


def _python(options: TrainOptions, from_job: Earlier | None) -> Path | None:
    python = options.rank_python or (from_job.rank_python if from_job else None)
    return rank_python.locate(python) if python else None


def parse_launch_style(text: str) -> str:
    """Return `LAUNCH_STYLE`; empty: found out from the script.

    Raises:
        RingmasterError: `text` is none of the styles.
    """
    if text and text not in STYLES:
        raise RingmasterError(
            f"LAUNCH_STYLE={text}: must be 1 (the script parses --local-rank, in the spelling found), 0 (it has no "
            "style of its own), --local-rank, --local_rank, or spawn (it starts its own processes)"
        )
    return text


def _placeholders(options: TrainOptions, from_job: Earlier | None, program: Program) -> bool:
    """Return whether placeholders are filled in: those of a resumed job's arguments as they were there."""
    as_before = from_job is not None and not options.args and not options.placeholders
    wanted = from_job.placeholders if from_job and as_before else switch("PLACEHOLDERS", options.placeholders)
    if wanted and program.bundled:
        raise RingmasterError(
            "PLACEHOLDERS=1: it is for a program of yours; the bundled trainer takes its place in the job by itself"
        )
    if wanted:
        names_in(program.arguments)
    return wanted


def _strategy(arguments: tuple[str, ...]) -> str:
    try:
        return trainer_config.strategy(arguments)
    except UserError as error:
        raise arguments_refused(error) from error


def arguments_refused(error: UserError) -> RingmasterError:
    """Return the error for arguments that the bundled trainer refuses."""
    return RingmasterError(f"ARGS: {error}", exit_code=ExitCode(error.exit_code))


def _existing(data: str, *, bundled: bool) -> Path:
    path = caller.absolute(data)
    if not path.exists():
        raise RingmasterError(
            f"DATA: {data}: no such file or folder{caller.looked_in(data)}; give the path of your copy, or leave DATA "
            + ("out to have the data set fetched, or use ARGS='--dataset synthetic'" if bundled else "out")
        )
    return path


def _secrets(name: str) -> Path:
    """Return the path of a file of secrets that can be parsed; no message shows its content."""
    path = caller.absolute(name)
    try:
        parse_secrets(path.read_bytes())
    except OSError as error:
        raise RingmasterError(f"SECRETS: {name}: can't be read ({error.strerror}){caller.looked_in(name)}") from error
    except ValueError as error:
        raise RingmasterError(f"SECRETS: {name}: {error}") from error
    return path


def split_arguments(text: str) -> tuple[str, ...]:
    """Split `ARGS` as POSIX words; nothing is expanded, every byte is kept.

    Raises:
        RingmasterError: a quotation is not closed.
    """
    return _words("ARGS", text)


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        shown = f" in {text!r}" if option == "ARGS" else ""  # ENV may hold what should have been in SECRETS
        raise RingmasterError(f"{option}: {str(error).lower()}{shown}; quote as in a shell") from error


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables of `ENV`: POSIX words, each `NAME=value`; nothing is expanded.

    Raises:
        RingmasterError: a word is something else, or names a variable that is not the user's to set. A value that may
            be a secret is not shown.
    """
    variables: dict[str, str] = {}
    for word in _words("ENV", text):
        name, equals, value = word.partition("=")
        if not equals:
            raise RingmasterError(f"ENV: {word!r} is no NAME=value; several have spaces between: ENV='A=1 B=\"x y\"'")
        if problem := _variable_problem(name, value):
            raise RingmasterError(f"ENV: {problem}")
        if name in variables:
            raise RingmasterError(f"ENV: {name} is given twice; give it once")
        variables[name] = value
    return variables


def _variable_problem(name: str, value: str) -> str:
    if problem := rank_variables.name_problem(name):
        return problem
    if rank_variables.is_secret(name):
        return f"{name} is named as a secret is, and ENV is shown in plans: put it into a file, SECRETS=<file>"
    if not value.isprintable():
        return f"the value of {name} has control characters, or bytes that are not UTF-8: give it in one line of text"
    return rank_variables.value_problem(name, value)


def _nccl_debug(options: TrainOptions) -> dict[str, str]:
    """Return `NCCL_DEBUG` as a variable: it is short for ENV='NCCL_DEBUG=…'."""
    name, level = rank_variables.NCCL_DEBUG, options.nccl_debug
    if not level:
        return {}
    if name in parse_variables(options.env):
        raise RingmasterError(f"{name} is given twice, by itself and in ENV; give it once")
    if problem := rank_variables.value_problem(name, level):
        raise RingmasterError(problem)
    return {name: level}


def parse_nodes(text: str) -> int | None:
    """Return `NODES`, a whole number from 1 up; None where it is empty, for the default.

    Raises:
        RingmasterError: `text` is something else.
    """
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise RingmasterError(f"NODES={text}: must be a whole number from 1 up to the nodes in the inventory")
    return int(text)


def parse_gpus(text: str) -> str:
    """Return `GPUS`: `all` (also where it is empty), a count, or device ids with commas between.

    Raises:
        RingmasterError: `text` is something else.
    """
    if not text:
        return "all"
    if not re.fullmatch(r"all|[0-9]{1,4}|\w[\w-]*(,\w[\w-]*)*,?", text):
        raise RingmasterError(f"GPUS={text}: must be 'all', a count per node, or device ids such as 0,2 (one: 2,)")
    return text


def parse_ranks(text: str) -> int | None:
    """Return `RANKS`, a whole number from 1 up; None where it is empty: a rank for each GPU, or as the inventory says.

    Raises:
        RingmasterError: `text` is something else.
    """
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
        raise RingmasterError(f"RANKS={text}: must be a whole number from 1 up, the processes on each node")
    return int(text)
