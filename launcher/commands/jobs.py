"""`make status`, `make logs`, `make stop`: the jobs on the nodes, from whichever machine has the inventory."""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.base.paths import ROOT
from launcher.cluster.found_jobs import FoundJob, choose_job, find_jobs, plan_of
from launcher.cluster.job import ClusterJob
from launcher.cluster.teardown import prove_gone
from launcher.commands.inventory import open_cluster
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome, outcome_of
from launcher.follow.progress import Progress
from launcher.follow.screen import Screen, duration, shown
from launcher.follow.summary import finish
from launcher.job.folder import RUNS, JobFolder, create
from launcher.job.plan import Plan
from launcher.ssh.connection import Remote
from launcher.ssh.pool import Reached, open_all, refuse
from trainer.reporting.page import render
from trainer.reporting.summary import read_records


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; an empty one is its default."""

    name: str = ""
    inventory: str = ""
    limit: str = ""


@contextmanager
def _nodes(options: Options) -> Iterator[Reached]:
    """Connect to all nodes of the inventory that can be reached, and show the others.

    Raises:
        RingmasterError: the inventory is at fault, or no node can be reached.
    """
    inventory = open_cluster(options.inventory, limit=options.limit)
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
    with _nodes(options) as reached:
        jobs = _jobs(reached)
    jobs = [job for job in jobs if options.name in {"", job.name}]
    if not jobs:
        print(f"no job {'of that name ' if options.name else ''}on {', '.join(reached.remotes)}")
        return ExitCode.SUCCEEDED
    rows = [("job", "state", "age", "step", "nodes"), *(_row(job) for job in jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # one line each, however long: users copy names from here into NAME=
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
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
    return job.name, job.state, age, _step(job), ", ".join(job.parts)


def _step(job: FoundJob) -> str:
    progress = Progress().after(job.last)
    if progress.step is None:
        return ""
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    return f"{progress.step}{total}" + (f", epoch {progress.epoch}" if progress.epoch is not None else "")


def logs(options: Options) -> int:
    """Follow a job from the beginning of its logs to its end, fetch its results, and return its exit code.

    Ctrl-C leaves the job running. Of a job that has ended, the logs are shown and what is missing here is fetched.

    Raises:
        RingmasterError: there is no such job, it was not started, or it is not one of these nodes.
    """
    with _nodes(options) as reached:
        job = choose_job(_jobs(reached), options.name, running=False)
        if job is None:
            raise RingmasterError("no node knows of a job; make train starts one")
        if job.open and not job.begun:
            raise RingmasterError(_not_running(job), exit_code=ExitCode.NOT_STARTED)
        started_at = time.time() - (job.age_s or 0.0)
        plan, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
        folder = _folder(plan)
        with Screen(plan) as screen:
            if not job.open:
                return _replay(job, plan, folder, remotes, reached, screen)
            screen.banner(f"since {duration(max(0.0, job.age_s or 0.0))}; Ctrl-C leaves it running")
            attached = ClusterJob(plan, folder, remotes, reached.pins, screen.note, attach=True)
            outcome = Follower(plan, folder, attached.runtime, screen, only_follows=True).run()
            outcome = attached.collect(_known(job, outcome))
            if outcome.state == "detached":
                screen.note(f"job {job.name} goes on; make logs follows it again, make stop ends it")
                return outcome.exit_code
        return _end(job, plan, folder, attached, outcome, screen, started_at)


def stop(options: Options) -> int:
    """Stop a job on every node, with a checkpoint if its program writes one, and prove that nothing of it is left.

    Raises:
        RingmasterError: no node can be reached or knows the job that NAME names, or several run and NAME is empty.
    """
    with _nodes(options) as reached:
        job = choose_job(_jobs(reached), options.name, running=True)
        if job is None:
            print(f"no job runs on {', '.join(reached.remotes)}")
            return ExitCode.CLUSTER if reached.missing else ExitCode.SUCCEEDED
        if job.open:
            _stop(job, reached)
        return prove_gone(job, reached)


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


def _stop(job: FoundJob, reached: Reached) -> None:
    try:
        plan, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
    except RingmasterError as error:  # without its plan, the job can't be asked to stop: prove_gone ends it
        print(f"ringmaster: {error}")
        return
    started_at = time.time() - (job.age_s or 0.0)
    folder = _folder(plan)
    screen = _Quiet(plan)
    attached = ClusterJob(plan, folder, remotes, reached.pins, screen.note, attach=True)
    if job.runs:
        attached.mark("stopped")
        print(f"stopping job {job.name} on {', '.join(remotes)}; Ctrl-C: at once", flush=True)
    signals = (signal.SIGTERM,) if job.runs else ()
    outcome = Follower(plan, folder, attached.runtime, screen, received=signals).run()
    if job.runs:
        outcome = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
    elif not job.begun:
        outcome = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)  # never started
    _end(job, plan, folder, attached, attached.collect(_known(job, outcome)), screen, started_at)


class _Quiet(Screen):
    """A screen with the notes and the closing table, without what the job prints."""

    def line(self, node: str, rank: int, text: bytes) -> None:
        pass


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


def _replay(
    job: FoundJob,
    plan: Plan,
    folder: JobFolder,
    remotes: Mapping[str, Remote],
    reached: Reached,
    screen: Screen,
) -> int:
    """Fetch what is missing here of a job that has ended, and show what its ranks printed."""
    attached = ClusterJob(plan, folder, remotes, reached.pins, screen.note, attach=True)
    attached.collect(Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED))
    attached.fetch_closed()
    _write_report(folder)
    for node in plan.nodes:
        log = folder.logs / f"{node.name}.log"
        for line in log.read_bytes().split(b"\n") if log.exists() else ():
            rank, _, text = line.removeprefix(b"[").partition(b"] ")
            if rank.isdigit():
                screen.line(node.name, int(rank), text)
    screen.note(f"job {job.name} has ended: {job.state}; its results are in {shown(folder.path)}")
    return ExitCode.SUCCEEDED


def _write_report(folder: JobFolder) -> None:
    """Write the report of a job that was closed from another machine, from what was fetched."""
    if folder.summary.exists() and not folder.report.exists():
        summary = json.loads(folder.summary.read_text())
        folder.report.write_text(render(read_records(folder.metrics), summary), encoding="utf-8")


def _known(job: FoundJob, outcome: Outcome) -> Outcome:
    """Return the recorded outcome of a job that was already closed on some of its nodes, else `outcome`."""
    with suppress(KeyError, TypeError, ValueError):
        return outcome_of(job.summary or {})
    return outcome


def _end(
    job: FoundJob,
    plan: Plan,
    folder: JobFolder,
    attached: ClusterJob,
    outcome: Outcome,
    screen: Screen,
    started_at: float,
) -> int:
    ended_at = None if job.lasted_s is None else started_at + job.lasted_s
    summary = finish(folder, plan, outcome, started_at, screen.note, ended_at=ended_at)
    attached.finish(outcome)
    if outcome.failure:
        screen.failure(outcome.failure, shown(folder.logs / f"{outcome.failure.node}.log"))
    screen.result(summary, shown(folder.report))
    return outcome.exit_code
