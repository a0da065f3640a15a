"""`make status`, `logs` and `stop` where the nodes are processes of this machine: the jobs in this checkout's `runs/`.

Such a job lives in its launcher, which holds the job's folder (`launcher.job.held`).
"""

import json
import os
import signal
import time
from contextlib import suppress

from launcher.base.caller import shown
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.terminal import visible
from launcher.commands import job_table
from launcher.follow import node_log
from launcher.follow.outcome import recorded
from launcher.follow.progress import MetricsTail
from launcher.follow.show.screen import Screen, duration
from launcher.follow.summary import written
from launcher.job.folder import RUNS
from launcher.job.held import Holder, holder
from launcher.job.old_runs import Run, find_runs
from launcher.job.plan import Plan

_LOOK_S = 0.1
_WHERE = "on this machine, in this checkout"


def status(name: str) -> int:
    """Show the jobs that run; of the one that is named, also how it ended. Return the exit code."""
    runs = [run for run in _here() if name == run.folder.name or (not name and run.holder)]
    if not runs:
        print(f"no job {'of that name is known' if name else 'runs'} {_WHERE}")
        return ExitCode.SUCCEEDED
    job_table.show([_row(run) for run in runs])
    return ExitCode.SUCCEEDED


def logs(name: str) -> int:
    """Print what a job's ranks have printed, and return its exit code; without a name it is the newest job's.

    Raises:
        RingmasterError: there is no such job.
    """
    run = _chosen(name, running=False)
    if run is None:
        raise RingmasterError("no job of this machine is in runs/; make train starts one")
    plan = _plan(run)
    with Screen(plan, run.folder.logs) as screen:
        for node in plan.nodes:
            log = run.folder.logs / f"{node.name}.log"
            for lines in node_log.read(log) if log.exists() else ():
                if lines.rank is not None:
                    screen.output(node.name, lines.rank, lines.texts)
                    screen.catch_up()
        if run.holder:
            screen.note(f"job {run.folder.name} runs; so far it has printed this, and its launcher shows it live")
            return ExitCode.SUCCEEDED
        screen.note(f"job {run.folder.name} has ended: {_state(run)}; its results are in {shown(run.folder.path)}")
    return recorded(written(run.folder)).exit_code


def stop(name: str) -> int:
    """Have a job's launcher stop it, as SIGTERM does, and wait until it has; Ctrl-C ends it at once.

    Raises:
        RingmasterError: there is no such job, several run and none was named, or it can't be reached from here.
    """
    run = _chosen(name, running=True)
    if run is None or run.holder is None:
        print(f"job {run.folder.name} has ended: {_state(run)}" if run else f"no job runs {_WHERE}")
        return ExitCode.SUCCEEDED
    job, folder = run.folder.name, run.folder
    if not run.holder.is_here:
        raise RingmasterError(
            f"job {job} runs on {visible(run.holder.host) or 'another machine'}: make stop there, or Ctrl-C where it "
            "was started",
            exit_code=ExitCode.CLUSTER,
        )
    print(f"ringmaster: stopping job {job}; Ctrl-C: at once", flush=True)
    _tell(run, signal.SIGTERM)
    while holder(folder):
        try:
            time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            _tell(run, signal.SIGINT)
    print(f"job {job} has ended: {_state(run)}; its results are in {shown(folder.path)}")
    return ExitCode.SUCCEEDED


def _here() -> list[Run]:
    return [run for run in find_runs(RUNS) if run.on_this_machine]


def _chosen(name: str, *, running: bool) -> Run | None:
    """Return the job called `name`; without a name the only one that runs, or, unless `running`, the newest.

    Raises:
        RingmasterError: there is no such job, or several run.
    """
    runs = _here()
    if name:
        for run in runs:
            if run.folder.name == name:
                return run
        known = ", ".join(run.folder.name for run in runs[:5]) or "none"
        raise RingmasterError(f"NAME={name}: no such job of this machine in runs/; known jobs: {known}")
    running_now = [run for run in runs if run.holder]
    if len(running_now) > 1:
        names = ", ".join(run.folder.name for run in running_now)
        raise RingmasterError(f"{len(running_now)} jobs are running ({names}): choose one with NAME=")
    if running_now or running:
        return running_now[0] if running_now else None
    return runs[0] if runs else None


def _row(run: Run) -> tuple[str, ...]:
    age = duration(max(0.0, time.time() - run.started_at))
    step = job_table.step_of(MetricsTail(run.folder.metrics).look())
    with suppress(RingmasterError):
        return run.folder.name, _state(run), age, step, ", ".join(node.name for node in _plan(run).nodes)
    return run.folder.name, _state(run), age, step, ""


def _state(run: Run) -> str:
    if run.holder and holder(run.folder):
        return "running" if run.holder.is_here else f"running on {run.holder.host}"
    return recorded(written(run.folder)).state


def _plan(run: Run) -> Plan:
    try:
        return Plan.from_json(json.loads(run.folder.plan.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RingmasterError(f"{shown(run.folder.plan)}: can't be used ({error})") from error


def _tell(run: Run, signum: signal.Signals) -> None:
    """Signal a job's launcher, and nobody who has got its number since."""
    known: Holder | None = run.holder
    if known is None:
        return
    with suppress(OSError):
        if not hasattr(os, "pidfd_open"):
            os.kill(known.pid, signum)
            return
        held_process = os.pidfd_open(known.pid)
        try:
            if holder(run.folder) == known:
                signal.pidfd_send_signal(held_process, signum)
        finally:
            os.close(held_process)
