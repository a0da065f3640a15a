"""This machine as the place of a job's nodes: processes, no SSH, no containers."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ON_NODE, ROOT
from launcher.base.terminal import visible
from launcher.follow.outcome import Outcome
from launcher.inventory.hosts import Host
from launcher.job.checkpoint import Checkpoint, cant_be_asked, newest_here
from launcher.job.facts import GLOO, Places
from launcher.job.folder import Earlier, JobFolder
from launcher.job.plan import RANK_WORDS, Plan, make_plan
from launcher.job.request import Request
from launcher.local import machine, run_folder
from launcher.local.facts import gather, refuse_unknown_interfaces, refuse_unseen_gpus
from launcher.local.gpu_shares import with_shared_gpus
from launcher.local.interpreter import refuse_missing
from launcher.local.python import Interpreter, our_python, users_python
from launcher.local.run_folder import RunFolder
from launcher.local.runtime import ProcessRuntime

_VENV = ROOT / ".venv"


class LocalSite:
    """Nodes that are processes of this machine."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._user: Interpreter | None = None
        """The user's own Python, where ranks run with it."""

    @property
    def versions(self) -> str:
        """The versions of Python, torch and torchvision here; of the user's own, also where it is."""
        user, python = self._user, self._user or our_python(os.environ)
        return python.versions + (f" ({user.program})" if user else "")

    def newest(self, job: Earlier) -> Checkpoint:
        """Return the newest valid checkpoint of an earlier job, which has to be here.

        Raises:
            RingmasterError: it ran on other machines, or there is no valid checkpoint.
        """
        if job.head:
            raise cant_be_asked(job, "this inventory is this machine alone: give that job's INVENTORY")
        chosen = newest_here(job)
        work = job.folder.work_of("", head=True)
        if not work.is_dir():
            return chosen
        note = f"what job {job.folder.name} wrote beside its code stays in {work}: here, scripts run in place"
        return replace(chosen, notes=(*chosen.notes, note))

    def plan(self, folder: JobFolder, request: Request, *, resumes: bool) -> Plan:
        """Plan the job on this machine's cores and GPUs.

        Raises:
            RingmasterError: the inventory doesn't fit this machine, or nothing here has the module.
        """
        if request.python and self._user is None:
            self._user = users_python(request.python, os.environ, bundled=request.program.bundled)
        python = self._user or our_python(os.environ)
        machine_facts = gather(self._hosts)
        refuse_unknown_interfaces(machine_facts, request)
        settings = machine_facts[0].settings
        for name in ("gpus", "data_dir"):
            if len({str(fact.settings.get(name)) for fact in machine_facts}) > 1:
                raise RingmasterError(
                    f"ringmaster_{name} differs between nodes, but they are one machine; give one value"
                )
        gpus = str(settings["gpus"]) if "gpus" in settings and request.gpus == "all" else request.gpus
        places = Places(
            # A script may use any name there; the bundled trainer uses none of ours.
            run=folder.path if request.program.bundled else folder.own,
            data=Path(settings.get("data_dir", ROOT / "data")),
            own_data=request.data,
            checkpoints=folder.checkpoints,
            code=request.program.root,
            secrets=request.secrets,
            rank_program=ON_NODE / "rank.py",
            python=python.program,
            agent=python.agent,
        )
        if request.program.module and (self._user or _has_torch()):  # else what is to be installed first may bring it
            refuse_missing(request.program.module, request.program.root, places.python)
        facts = with_shared_gpus(machine_facts, gpus)
        port = machine.free_port(facts[0].address)
        plan = make_plan(folder.name, request, facts, places, port, resumes=resumes)
        return replace(
            plan,
            nodes=tuple(replace(node, environment={**python.environment, **node.environment}) for node in plan.nodes),
            rank_python=str(self._user.program) if self._user else None,
            notes=(*plan.notes, *_notes(plan, self._user)),
        )

    def equip(self, plan: Plan) -> bool:
        """Install torch, which processes of this machine need; a machine that only controls a cluster never gets it.

        Where the user's own Python is the ranks', nothing is installed.

        Raises:
            RingmasterError: torch can't be installed or is missing, or doesn't see the planned GPUs.
        """
        had_torch = _has_torch()
        if self._user is None:
            _install_torch()
            if plan.module and plan.code_root and not had_torch:
                refuse_missing(plan.module, Path(plan.code_root), Path(plan.nodes[0].argv[-RANK_WORDS]))
        if not plan.bundled:  # the bundled trainer checks this itself, without another import of torch
            refuse_unseen_gpus(plan, self._user.program if self._user else Path(sys.executable))
        return False

    def prepare(self, plan: Plan) -> None:
        """Do nothing: the data is here already."""

    def place(self, plan: Plan, folder: JobFolder, _request: Request) -> None:
        """Make what the ranks call RUN_DIR; everything else is here already.

        Raises:
            RingmasterError: the disk refuses it.
        """
        if plan.bundled:
            return
        try:
            run_folder.make(folder)
        except OSError as error:
            raise RingmasterError(
                f"{folder.own}: can't be made ({error.strerror})", exit_code=ExitCode.NOT_STARTED
            ) from error

    def job(self, plan: Plan, folder: JobFolder) -> "LocalJob":
        """Return the job as it runs and ends."""
        return LocalJob(RunFolder(folder, plan.nodes[0].name))


class LocalJob:
    """One job on this machine, where everything it writes is at home already."""

    clock_s = 0.0

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.runtime = ProcessRuntime(os.environ)

    def mark_stopped(self) -> None:
        """Do nothing: nobody else can follow a job of this machine."""

    def collect(self, outcome: Outcome) -> Outcome:
        """Put what the job has written into its place; return the outcome as it is."""
        left = self._folder.bring_home()
        if left:
            print(f"ringmaster: stays in the job's folder run/: {visible(', '.join(left[:5]))}", flush=True)
        return outcome

    def finish(self, outcome: Outcome, summary: Mapping[str, Any]) -> None:
        """Do nothing: nothing of the job is anywhere else."""


def _install_torch() -> None:
    if Path(sys.prefix) == _VENV:
        code = subprocess.run([str(ROOT / "requirements" / "install.sh"), "trainer"], check=False).returncode
        if code != 0:
            raise RingmasterError("PyTorch could not be installed, see above", exit_code=ExitCode.NOT_STARTED)
    elif not _has_torch():
        raise RingmasterError(
            f"{sys.executable} has no torch; install requirements/trainer.txt there, or use make, which does",
            exit_code=ExitCode.NOT_STARTED,
        )


def _has_torch() -> bool:
    return util.find_spec("torch") is not None


def _notes(plan: Plan, user: Interpreter | None) -> Iterator[str]:
    """Yield what to say of this machine's GPUs, and of the user's own Python: a script's end may be aborted in it."""
    if machine.chosen_in_vain(os.environ):
        yield "CUDA_VISIBLE_DEVICES names GPUs, but this machine has none: the CPU trains"
    if user and not user.waits and plan.backend == GLOO and not plan.bundled:
        yield (
            f"{user.program} has no ringmaster_exit: a script that ends right after an exchange over Gloo may be "
            "aborted (docs/scripts.md, Packages)"
        )
