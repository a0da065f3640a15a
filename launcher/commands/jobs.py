"""`make status`, `make logs`, `make stop`: the jobs on the nodes, from whichever machine has the inventory."""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from launcher.base import node_table
from launcher.base.atomic_file import write_json
from launcher.base.caller import shown
from launcher.base.errors import BY_SIGNAL, ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.base.paths import ROOT
from launcher.base.terminal import visible
from launcher.base.values import size
from launcher.cluster.found_jobs import FoundJob, choose_job, find_jobs, plan_of
from launcher.cluster.job import ClusterJob
from launcher.cluster.teardown import prove_gone
from launcher.commands import job_table, local_jobs
from launcher.commands.inventory import Inventory, open_inventory
from launcher.follow import node_log
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome, recorded, seen_end
from launcher.follow.progress import Progress
from launcher.follow.show.closing import show_end, unknown_line
from launcher.follow.show.screen import Screen, duration
from launcher.follow.summary import finish, with_incidents, written
from launcher.job.folder import RUNS, JobFolder, create
from launcher.job.held import held
from launcher.job.plan import Plan
from launcher.on_node.job_folder import knows_more
from launcher.ssh.connection import Remote
from launcher.ssh.pool import Reached, open_all, refuse
from trainer.reporting.page import render
from trainer.reporting.summary import number


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; an empty one is its default."""

    name: str = ""
    inventory: str = ""
    limit: str = ""
    ask: str = ""


@dataclass(frozen=True, kw_only=True)
class LogsOptions(Options):
    """The same of `make logs`."""

    work_limit: str = ""


def _inventory(options: Options) -> Inventory:
    """Return the nodes to ask: all of them machines, or all of them processes of this one.

    Raises:
        RingmasterError: the inventory is at fault, or it has both.
    """
    inventory = open_inventory(options.inventory, limit=options.limit, ask=options.ask)
    if not inventory.is_this_machine:
        inventory.refuse_processes()
    return inventory


@contextmanager
def _nodes(inventory: Inventory) -> Iterator[Reached]:
    """Connect to all nodes of the inventory that can be reached, and show the others.

    Raises:
        RingmasterError: no node can be reached.
    """
    opened, failed = open_all(inventory.hosts, inventory.pins)
    try:
        if not opened:
            refuse(inventory.hosts, failed)
        if failed:
            node_table.show(list(failed.values()))
        yield Reached(remotes=opened, missing=failed, pins=inventory.pins)
    finally:
        for remote in opened.values():
            remote.close()


def status(options: Options) -> int:
    """Show every job that the nodes know of, and return the exit code."""
    inventory = _inventory(options)
    if inventory.is_this_machine:
        return local_jobs.status(options.name)
    with _nodes(inventory) as reached:
        jobs = _jobs(reached)
    jobs = [job for job in jobs if options.name in {"", job.name}]
    if not jobs:
        print(f"no job {'of that name ' if options.name else ''}on {', '.join(reached.remotes)}")
        return ExitCode.SUCCEEDED
    job_table.show([_row(job) for job in jobs])
    return ExitCode.SUCCEEDED


def _jobs(reached: Reached) -> list[FoundJob]:
    """Return the jobs; nodes that can't report theirs are shown, and count as not reached.

    Raises:
        RingmasterError: no node can report its jobs.
    """
    jobs, silent = find_jobs(reached.remotes)
    rows = {
        name: Row(name=name, address=reached.remotes[name].host.address, state="failed", why=why)
        for name, why in silent.items()
    }
    if rows:
        node_table.show(list(rows.values()))
        reached.missing.update(rows)
        for name in rows:
            reached.remotes.pop(name).close()
    if not reached.remotes:
        raise RingmasterError("no node can report its jobs (see the table)", exit_code=ExitCode.NOT_STARTED)
    return jobs


def _row(job: FoundJob) -> tuple[str, ...]:
    age = "" if job.age_s is None else duration(max(0.0, job.age_s))
    return job.name, job.state, age, job_table.step_of(Progress().after(job.last)), ", ".join(job.parts)


def logs(options: LogsOptions) -> int:
    """Follow a job from the beginning of its logs to its end, fetch its results, and return its exit code.

    Ctrl-C leaves the job running. Of a job that has ended, the logs are shown and what is missing here is fetched.

    Raises:
        RingmasterError: there is no such job, it was not started, or it is not one of these nodes.
    """
    work_limit = size("WORK_LIMIT", options.work_limit)
    inventory = _inventory(options)
    if inventory.is_this_machine:
        return local_jobs.logs(options.name)
    with _nodes(inventory) as reached:
        job = choose_job(_jobs(reached), options.name, running=False)
        if job is None:
            raise RingmasterError("no node knows of a job; make train starts one")
        if job.open and not job.begun:
            raise RingmasterError(_not_running(job), exit_code=ExitCode.NOT_STARTED)
        started_at = time.time() - (job.age_s or 0.0)
        plan, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
        folder = _folder(plan)
        with held(folder), Screen(plan, folder.logs) as screen:
            attach = partial(ClusterJob, plan, folder, remotes, reached.pins, screen.note, work_limit=work_limit)
            if not job.open:
                return _replay(job, plan, folder, attach(attach=True), screen)
            screen.banner(f"since {duration(max(0.0, job.age_s or 0.0))}; Ctrl-C leaves it running")
            attached = attach(attach=True)
            outcome = Follower(plan, folder, attached.runtime, screen, only_follows=True).run()
            screen.hurried = outcome.exit_code in BY_SIGNAL
            outcome = _known(job, folder, attached.collect(outcome))
            if outcome.state == "detached":
                screen.note(f"job {job.name} goes on; make logs follows it again, make stop ends it")
                return outcome.exit_code
            return _end(job, plan, folder, attached, outcome, screen, started_at)


def stop(options: Options) -> int:
    """Stop a job on every node, with a checkpoint if its program writes one, and prove that nothing of it is left.

    Raises:
        RingmasterError: no node can be reached or knows the job that NAME names, or several run and NAME is empty.
    """
    inventory = _inventory(options)
    if inventory.is_this_machine:
        return local_jobs.stop(options.name)
    with _nodes(inventory) as reached:
        job = choose_job(_jobs(reached), options.name, running=True)
        if job is None:
            print(f"no job runs on {', '.join(reached.remotes)}")
            return ExitCode.CLUSTER if reached.missing else ExitCode.SUCCEEDED
        state, unrecorded = _stop(job, reached) if job.open else (job.state, set())
        proved = prove_gone(job, reached, unrecorded=unrecorded)
    return ExitCode.CLUSTER if state == "unknown" else proved


def _not_running(job: FoundJob) -> str:
    if job.state == "starting":
        return f"job {job.name} is being started; Ctrl-C there, or make stop NAME={job.name} here, ends that"
    return (
        f"job {job.name} was never started, and the launcher that began it is gone: make stop NAME={job.name} cleans "
        "up after it"
    )


def _refuse_strangers(job: FoundJob, remotes: Mapping[str, Remote]) -> None:
    if not remotes:
        raise RingmasterError(
            f"job {job.name} was started with an inventory whose nodes have other names and addresses than ours",
            exit_code=ExitCode.CLUSTER,
        )


def _stop(job: FoundJob, reached: Reached) -> tuple[str, set[str]]:
    """Ask the job to end, fetch its results and close it.

    Returns: how it ended, in a word; and the nodes, by our names, whose disk could not take the record of that.
    """
    try:
        plan, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
    except RingmasterError as error:  # without its plan, the job can't be asked to stop: prove_gone ends it
        print(f"ringmaster: {visible(str(error))}")
        return job.state, set()
    started_at = time.time() - (job.age_s or 0.0)
    folder = _folder(plan)
    with held(folder), Screen(plan, folder.logs, quiet=True) as screen:
        attached = ClusterJob(plan, folder, remotes, reached.pins, screen.note, attach=True)
        signals: tuple[signal.Signals, ...] = ()
        if job.failed and job.runs:  # its failure came first: whoever follows sees it, and ends the rest
            screen.note(f"job {job.name} has failed on {', '.join(job.failed)}; ending the rest of it")
        elif job.runs:
            signals = (signal.SIGTERM,)
            attached.mark_stopped()
            screen.note(f"stopping job {job.name} on {', '.join(remotes)}; Ctrl-C: at once")
        outcome = Follower(plan, folder, attached.runtime, screen, received=signals).run()
        if not job.begun:
            outcome = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)  # never started
        outcome = _known(job, folder, attached.collect(outcome))
        _end(job, plan, folder, attached, outcome, screen, started_at)
    ours = {remotes[name].name for name in attached.unrecorded if name in remotes}
    return outcome.state, {name for name in ours if job.parts[name].folder}  # else there is no place for a record


def _folder(plan: Plan) -> JobFolder:
    """Return the job's folder here; create it if this machine has not seen the job before.

    Raises:
        RingmasterError: there is another job of that name here.
    """
    folder = JobFolder(path=RUNS / plan.name)
    if not folder.path.exists():
        create(folder, plan)
        return folder
    try:
        same = json.loads(folder.plan.read_text()) == json.loads(json.dumps(plan.as_json()))
    except (OSError, ValueError):
        same = False
    if not same:
        where = folder.path.relative_to(ROOT)
        raise RingmasterError(f"{where} belongs to another job of the same name: move it away, then try again")
    return folder


def _replay(job: FoundJob, plan: Plan, folder: JobFolder, attached: ClusterJob, screen: Screen) -> int:
    """Fetch what is missing here of a job that has ended, and show what its ranks printed."""
    outcome = _known(job, folder, attached.collect(recorded(job.summary)))
    if knows_more(job.summary, written(folder)):
        write_json(folder.summary, job.summary)
        folder.report.unlink(missing_ok=True)
    attached.fetch_closed()
    _write_report(folder, outcome)
    for node in plan.nodes:
        log = folder.logs / f"{node.name}.log"
        for lines in node_log.read(log) if log.exists() else ():
            if lines.rank is not None:
                screen.output(node.name, lines.rank, lines.texts)
                screen.catch_up()
    screen.note(f"job {job.name} has ended: {outcome.state}; its results are in {shown(folder.path)}")
    if outcome.state == "unknown":
        screen.note(unknown_line(outcome, folder))
    return outcome.exit_code


def _write_report(folder: JobFolder, outcome: Outcome) -> None:
    """Write the report of a job that was closed from another machine, from what was fetched."""
    records = with_incidents(folder, outcome)  # a node's metrics have none: it was the launcher that saw them
    if folder.summary.exists() and not folder.report.exists():
        summary = json.loads(folder.summary.read_text())
        folder.report.write_text(render(records, summary), encoding="utf-8")


def _known(job: FoundJob, folder: JobFolder, outcome: Outcome) -> Outcome:
    """Return the end that somebody saw and recorded, on one of the job's nodes or here; else `outcome`."""
    if outcome.state == "detached":
        return outcome
    known = seen_end(job.summary) or seen_end(written(folder)) or outcome
    # A node that counted as lost may have gone on. Each rank has ended with 0 then, as its own container tells.
    mistaken = known.state == "failed" and outcome.state == "succeeded"
    return outcome if mistaken and all(part.container for part in job.parts.values()) else known


def _end(
    job: FoundJob,
    plan: Plan,
    folder: JobFolder,
    attached: ClusterJob,
    outcome: Outcome,
    screen: Screen,
    started_at: float,
) -> int:
    ended_at = time.time() if job.runs else _ended_at(job, folder, outcome, started_at)
    summary = finish(folder, plan, outcome, started_at, screen.note, ended_at=ended_at)
    attached.finish(outcome, summary)
    show_end(screen, outcome, summary, folder)
    return outcome.exit_code


def _ended_at(job: FoundJob, folder: JobFolder, outcome: Outcome, started_at: float) -> float | None:
    """When a job ended that did so before we looked: its containers tell, or a summary; None if nobody knows."""
    if outcome.state == "unknown":
        return None
    told = (number(each, "wall_s") for each in (job.summary, written(folder)) if isinstance(each, Mapping))
    lasted = next((each for each in (job.lasted_s, *told) if each is not None), None)
    return None if lasted is None else started_at + lasted
