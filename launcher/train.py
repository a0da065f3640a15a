"""`make train`: options -> inventory -> plan -> run -> summary."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

from launcher import dry_run, inventory, machine
from launcher.errors import ExitCode, RingmasterError
from launcher.facts import gather, refuse_unseen_gpus
from launcher.gpus import with_shared_gpus
from launcher.inventory import Host
from launcher.job import JobFolder, NameTakenError, choose, create, earlier
from launcher.options import TrainOptions, inventory_path, switch, to_request
from launcher.plan import Places, Plan, make_plan
from launcher.process import ProcessRuntime
from launcher.program import ROOT
from launcher.request import Request, choose_nodes
from launcher.screen import Screen
from launcher.summary import finish
from launcher.supervise import Outcome, Supervisor
from trainer import config as trainer_config
from trainer.errors import UserError

RUNS = ROOT / "runs"
_VENV = ROOT / ".venv"


def run(options: TrainOptions, *, started_at: float) -> int:
    """Plan the job, carry it out, and return its exit code.

    Args:
        started_at: unix time of the launcher's start, from which `first_step_s` and `wall_s` count.

    Raises:
        RingmasterError: the request, the inventory or a check before the start is at fault; nothing was started.
    """
    from_job = earlier(RUNS, options.resume) if options.resume else None
    asked = to_request(options, from_job)
    if asked.program.script is None and {"-h", "--help"} & set(asked.program.arguments):
        print(trainer_config.usage())
        return ExitCode.SUCCEEDED
    hosts = inventory.read(inventory_path(options.inventory), limit=options.limit)
    made, folder = _planned(options, asked, hosts, resumes=from_job is not None)
    if switch("DRY_RUN", options.dry_run):
        dry_run.show(made)
        return ExitCode.SUCCEEDED
    _install_torch()
    if made.script is not None:  # the bundled trainer looks for itself, without another import of torch
        refuse_unseen_gpus(made)
    while True:
        try:
            create(folder, made, inherits=from_job.folder if from_job else None)
            break
        except NameTakenError:
            if options.name:
                raise
            made, folder = _planned(options, asked, hosts, resumes=from_job is not None)
    return _carry_out(made, folder, started_at)


def _planned(options: TrainOptions, asked: Request, hosts: Sequence[Host], *, resumes: bool) -> tuple[Plan, JobFolder]:
    folder = choose(RUNS, options.name)
    made = _plan(folder, asked, hosts, resumes=resumes)
    _check_trainer_arguments(made)
    return made, folder


def _plan(folder: JobFolder, asked: Request, hosts: Sequence[Host], *, resumes: bool) -> Plan:
    found = gather(choose_nodes(hosts, asked.nodes))
    settings = found[0].settings
    for name in ("gpus", "data_dir"):
        if len({str(fact.settings.get(name)) for fact in found}) > 1:
            raise RingmasterError(f"ringmaster_{name} differs between nodes, but they are one machine; give one value")
    gpus = str(settings["gpus"]) if "gpus" in settings and asked.gpus == "all" else asked.gpus
    facts = with_shared_gpus(found, gpus)
    places = Places(
        run=folder.path,
        data=Path(settings.get("data_dir", ROOT / "data")),
        checkpoints=folder.checkpoints,
        rank_program=ROOT / "launcher" / "rank.py",
        python=Path(sys.executable),
        torchrun=Path(sys.executable).with_name("torchrun"),
    )
    port = machine.free_port(facts[0].address)
    return make_plan(folder.name, asked, facts, places, port, resumes=resumes)


def _check_trainer_arguments(made: Plan) -> None:
    """Let the bundled trainer look at its arguments before anything starts."""
    if made.script is not None:
        return
    try:
        parsed = trainer_config.parse(made.arguments, made.nodes[0].environment)
        trainer_config.validate_world(parsed, nodes=len(made.nodes), world_size=made.world_size)
    except UserError as error:
        raise RingmasterError(f"ARGS: {error}", exit_code=ExitCode(error.exit_code)) from error


def _install_torch() -> None:
    """Processes on this machine need torch; whoever only controls a cluster never installs it."""
    if Path(sys.prefix) == _VENV:
        code = subprocess.run([str(ROOT / "requirements" / "install.sh"), "trainer"], check=False).returncode
        if code != 0:
            raise RingmasterError("PyTorch could not be installed, see above", exit_code=ExitCode.NOT_STARTED)
    elif util.find_spec("torch") is None:
        raise RingmasterError(
            f"{sys.executable} has no torch; install requirements/trainer.txt there, or use make, which does",
            exit_code=ExitCode.NOT_STARTED,
        )


def _carry_out(made: Plan, folder: JobFolder, started_at: float) -> int:
    with Screen(made) as screen:
        screen.banner(_versions())
        try:
            outcome = Supervisor(made, folder, ProcessRuntime(os.environ), screen).run()
        except Exception:
            finish(folder, made, Outcome(state="failed", exit_code=ExitCode.FAILED), started_at, screen.note)
            raise
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left takes milliseconds, and must be written
    summary = finish(folder, made, outcome, started_at, screen.note)
    if outcome.failure:
        screen.failure(outcome.failure, _shown(folder.logs / f"{outcome.failure.node}.log"))
    screen.result(summary, _shown(folder.report))
    return outcome.exit_code


def _versions() -> str:
    found = {name: _version(name) for name in ("torch", "torchvision")}
    python = ".".join(str(part) for part in sys.version_info[:3])
    return f"Python {python}, " + ", ".join(f"{name} {version}" for name, version in found.items())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _shown(path: Path) -> str:
    """A path as short as it can be from where the user is."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
