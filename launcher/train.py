"""`make train`: options -> inventory -> plan -> run -> summary."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from launcher import inventory, machine, plan, program
from launcher.errors import ExitCode, RingmasterError
from launcher.inventory import Host
from launcher.job import Earlier, JobFolder, choose, create, earlier, inherit_checkpoints
from launcher.plan import NodeFacts, Places, Plan, Request
from launcher.process import ProcessRuntime
from launcher.program import ROOT, Program
from launcher.screen import Screen
from launcher.summary import finish
from launcher.supervise import Supervisor
from trainer import config as trainer_config
from trainer.errors import UserError

RUNS = ROOT / "runs"
_VENV = ROOT / ".venv"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """`make train`'s variables as the user typed them; empty is the default."""

    nodes: str = ""
    gpus: str = ""
    script: str = ""
    args: str = ""
    data: str = ""
    name: str = ""
    resume: str = ""
    inventory: str = ""
    limit: str = ""
    launch_style: str = ""
    dry_run: str = ""


def run(options: TrainOptions, *, started_at: float) -> int:
    """Plan the job, carry it out, and return its exit code.

    Args:
        started_at: unix time of the launcher's start, from which `first_step_s` and `wall_s` count.

    Raises:
        RingmasterError: the request, the inventory or a check before the start is at fault; nothing was started.
    """
    from_job = earlier(RUNS, options.resume) if options.resume else None
    request = _request(options, from_job)
    if request.program.script is None and {"-h", "--help"} & set(request.program.arguments):
        print(trainer_config.usage())
        return ExitCode.SUCCEEDED
    hosts = inventory.read(_inventory_path(options.inventory), limit=options.limit)
    folder = choose(RUNS, options.name)
    made = _plan(folder, request, hosts, resumes=from_job is not None)
    _check_trainer_arguments(made)
    if _switch("DRY_RUN", options.dry_run):
        _print_plan(made)
        return ExitCode.SUCCEEDED
    _install_torch()
    _refuse_unseen_gpus(made)
    create(folder, made)
    if from_job:
        inherit_checkpoints(from_job.folder, folder)
    return _carry_out(made, folder, started_at)


def _request(options: TrainOptions, from_job: Earlier | None) -> Request:
    script, data = options.script, options.data
    arguments = program.split_arguments(options.args)
    if from_job:
        script = script or from_job.script or ""
        data = data or from_job.data or ""
        arguments = arguments or from_job.arguments
    style = options.launch_style
    if style not in {"", "0", "1"}:
        raise RingmasterError(f"LAUNCH_STYLE={style}: must be 1 (the script parses --local-rank) or 0")
    return Request(
        nodes=plan.parse_nodes(options.nodes),
        gpus=plan.parse_gpus(options.gpus),
        program=_program(script, arguments, style),
        data=_existing(data) if data else None,
        environment={key: value for key, value in os.environ.items() if key in plan.TUNABLE},
    )


def _program(script: str, arguments: tuple[str, ...], launch_style: str) -> Program:
    if not script:
        return program.bundled(arguments)
    return program.user_script(Path(script), arguments, launch_style=launch_style)


def _existing(data: str) -> Path:
    path = Path(data).expanduser().absolute()
    if not path.exists():
        raise RingmasterError(
            f"DATA: {data}: no such file or folder; give the path of your copy, or leave DATA away to fetch the data"
        )
    return path


def _inventory_path(given: str) -> Path:
    if given:
        return Path(given)
    hosts = ROOT / "inventory" / "hosts.yml"
    return hosts if hosts.exists() else ROOT / "inventory" / "local.yml"


def _plan(folder: JobFolder, request: Request, hosts: Sequence[Host], *, resumes: bool) -> Plan:
    chosen = plan.choose_nodes(hosts, request.nodes)
    facts = plan.with_shared_gpus(_facts(chosen), request.gpus)
    places = Places(
        run=folder.path,
        data=ROOT / "data",
        checkpoints=folder.checkpoints,
        rank_program=ROOT / "launcher" / "rank.py",
        python=Path(sys.executable),
        torchrun=Path(sys.executable).with_name("torchrun"),
    )
    port = machine.free_port(facts[0].address)
    return plan.make_plan(folder.name, request, facts, places, port, resumes=resumes)


def _facts(hosts: Sequence[Host]) -> list[NodeFacts]:
    """What this machine can tell of nodes that are processes on it.

    Raises:
        RingmasterError: a node's runtime is not `process`, or its address is not this machine's.
    """
    gpus, cores = machine.gpus(os.environ), machine.cores()
    facts = []
    for host in hosts:
        if host.runtime != "process":
            raise RingmasterError(
                f"{host.name}: ringmaster_runtime is '{host.runtime}'; only 'process' (nodes on this machine) can "
                "train so far: use inventory/local.yml"
            )
        address = str(host.settings.get("cluster_ip") or host.address)
        if not machine.is_this_machine(address):
            raise RingmasterError(
                f"{host.name}: {address} is not an address of this machine, where runtime 'process' runs; "
                "set ansible_host: 127.0.0.1"
            )
        _refuse_missing_gpus(host, gpus)
        facts.append(
            NodeFacts(
                name=host.name,
                runtime=host.runtime,
                address=address,
                interface=str(host.settings.get("interface") or machine.interface_of(address)),
                gpus=gpus,
                cores=cores,
                settings=host.settings,
            )
        )
    return facts


def _refuse_missing_gpus(host: Host, gpus: Sequence[str]) -> None:
    promised = host.settings.get("gpus")
    if promised is not None and int(promised) > len(gpus):
        raise RingmasterError(
            f"{host.name}: the inventory promises {promised} GPU(s), this machine shows {len(gpus)}; "
            "mend the driver (nvidia-smi), or ringmaster_gpus",
            exit_code=ExitCode.NOT_STARTED,
        )


def _check_trainer_arguments(made: Plan) -> None:
    """Let the bundled trainer look at its arguments before anything starts."""
    if made.script is not None:
        return
    try:
        parsed = trainer_config.parse(made.arguments, made.nodes[0].environment)
        trainer_config.validate_world(parsed, nodes=len(made.nodes), world_size=made.world_size)
    except UserError as error:
        raise RingmasterError(f"ARGS: {error}", exit_code=ExitCode(error.exit_code)) from error


def _switch(name: str, text: str) -> bool:
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{name}={text}: must be 1 or 0")
    return text == "1"


def _print_plan(made: Plan) -> None:
    print(f"job {made.name}: {len(made.nodes)} node(s), world size {made.world_size}, backend {made.backend}")
    for note in made.notes:
        print(f"note: {note}")
    for node in made.nodes:
        devices = ", ".join(node.devices) or "none"
        print(
            f"\n# {node.name}: {node.runtime}, {node.address} ({node.interface}), {node.ranks} rank(s), GPUs: {devices}"
        )
        print(f"cd {shlex.quote(node.working_folder)}")
        for key, value in node.environment.items():
            print(f"export {key}={shlex.quote(value)}")
        print(shlex.join(node.argv))
    print("\ndry run: nothing was started")


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


def _refuse_unseen_gpus(made: Plan) -> None:
    """Never train on the CPU in silence where the plan counts GPUs; an inventory's own `backend: gloo` means it."""
    devices = sorted({device for node in made.nodes for device in node.devices})
    if not devices or (made.backend_chosen and made.backend == plan.GLOO):
        return
    answer = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.device_count(), torch.version.cuda)"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices)},
        capture_output=True,
        text=True,
        check=False,
    )
    count, _, cuda = answer.stdout.strip().partition(" ")
    if count != str(len(devices)):
        raise RingmasterError(
            f"{len(devices)} GPU(s) planned, torch (CUDA {cuda or '?'}) sees {count or 'none'}: is the driver new "
            "enough for it (nvidia-smi)? To train without them: GPUS=0",
            exit_code=ExitCode.NOT_STARTED,
        )


def _carry_out(made: Plan, folder: JobFolder, started_at: float) -> int:
    with Screen(made) as screen:
        screen.banner(_versions())
        outcome = Supervisor(made, folder, ProcessRuntime(os.environ), screen).run()
    summary = finish(folder, made, outcome, started_at)
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
