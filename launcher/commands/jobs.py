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
from launcher.commands.inventory import inventory_path, pinned_file, refuse_processes
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome, outcome_of
from launcher.follow.progress import Progress
from launcher.follow.screen import Screen, duration, shown
from launcher.follow.summary import finish
from launcher.inventory import hosts as inventory
from launcher.job.folder import RUNS, JobFolder, create
from launcher.job.plan import Plan
from launcher.ssh.connection import Remote
from launcher.ssh.pool import Reached, open_all, refuse
from trainer.reporting.page import render
from trainer.reporting.summary import read_records


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; empty is the default of each."""

    name: str = ""
    inventory: str = ""
    limit: str = ""


@contextmanager
def _nodes(options: Options) -> Iterator[Reached]:
    """Connections to all nodes of the inventory that can be reached; the others are shown."""
    path = inventory_path(options.inventory)
    hosts = inventory.read(path, limit=options.limit)
    refuse_processes(path, hosts)
    pins = pinned_file(path)
    opened, failed = open_all(hosts, pins)
    try:
        if not opened:
            refuse(hosts, failed)
        if failed:
            node_table.show(list(failed.values()))
        yield Reached(remotes=opened, missing=failed, pins=pins)
    finally:
        for remote in opened.values():
            remote.close()


def status(options: Options) -> int:
    """Show every job that the nodes know of."""
    with _nodes(options) as reached:
        jobs = _jobs(reached)
    jobs = [job for job in jobs if options.name in {"", job.name}]
    if not jobs:
        print(f"no job {'of that name ' if options.name else ''}on {', '.join(reached.remotes)}")
        return ExitCode.SUCCEEDED
    rows = [("job", "state", "age", "step", "nodes"), *(_row(job) for job in jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # a line each, whole however long: names are copied from here into NAME=
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return ExitCode.SUCCEEDED


def _jobs(reached: Reached) -> list[FoundJob]:
    """The jobs; nodes that can't tell of theirs are shown, and count as not reached."""
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
        raise RingmasterError("no node can tell of its jobs (see the table)", exit_code=ExitCode.NOT_STARTED)
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
    """Follow a job to its end, from the beginning of its logs, and bring its results home; Ctrl-C leaves it running."""
    with _nodes(options) as reached:
        job = choose_job(_jobs(reached), options.name, running=False)
        if job is None:
            raise RingmasterError("no node knows of a job; make train starts one")
        if job.open and not job.begun:
            raise RingmasterError(_not_running(job), exit_code=ExitCode.NOT_STARTED)
        started_at = time.time() - (job.age_s or 0.0)
        made, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
        folder = _folder(made)
        with Screen(made) as screen:
            if not job.open:
                return _replay(job, made, folder, remotes, reached, screen)
            screen.banner(f"since {duration(max(0.0, job.age_s or 0.0))}; Ctrl-C leaves it running")
            followed = ClusterJob(made, folder, remotes, reached.pins, screen.note, attach=True)
            outcome = Follower(made, folder, followed.runtime, screen, only_follows=True).run()
            outcome = followed.collect(_known(job, outcome))
            if outcome.state == "detached":
                screen.note(f"job {job.name} goes on; make logs follows it again, make stop ends it")
                return outcome.exit_code
        return _end(job, made, folder, followed, outcome, screen, started_at)


def stop(options: Options) -> int:
    """Stop a job everywhere, with a checkpoint if its program makes one, and prove that nothing of it is left."""
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
        return f"job {job.name} is being started; Ctrl-C there, or make stop NAME={job.name}, ends that"
    return f"job {job.name} was never started, whoever began that is gone: make stop NAME={job.name} clears it away"


def _refuse_strangers(job: FoundJob, remotes: Mapping[str, Remote]) -> None:
    if not remotes:
        raise RingmasterError(
            f"job {job.name} was started with an inventory whose nodes have other names and addresses than ours",
            exit_code=ExitCode.CLUSTER,
        )


def _stop(job: FoundJob, reached: Reached) -> None:
    try:
        made, remotes = plan_of(job, reached.remotes)
        _refuse_strangers(job, remotes)
    except RingmasterError as error:  # without its plan it can't be asked, only ended
        print(f"ringmaster: {error}")
        return
    started_at = time.time() - (job.age_s or 0.0)
    folder = _folder(made)
    screen = _Quiet(made)
    followed = ClusterJob(made, folder, remotes, reached.pins, screen.note, attach=True)
    if job.runs:
        followed.mark("stopped")
        print(f"stopping job {job.name} on {', '.join(remotes)}; Ctrl-C: at once", flush=True)
    asked = (signal.SIGTERM,) if job.runs else ()
    outcome = Follower(made, folder, followed.runtime, screen, received=asked).run()
    if job.runs:
        outcome = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
    elif not job.begun:
        outcome = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)  # never started
    _end(job, made, folder, followed, followed.collect(_known(job, outcome)), screen, started_at)


class _Quiet(Screen):
    """Notes and the closing table, without the job's own lines."""

    def line(self, node: str, rank: int, text: bytes) -> None:
        pass


def _folder(made: Plan) -> JobFolder:
    """The job's folder here; made where this machine has not seen the job before.

    Raises:
        RingmasterError: there is another job of that name here.
    """
    folder = JobFolder(path=RUNS / made.name)
    if not folder.path.exists():
        create(folder, made)
        return folder
    try:
        same = json.loads(folder.plan.read_text()) == json.loads(json.dumps(made.as_json()))
    except (OSError, ValueError):
        same = False
    if not same:
        where = folder.path.relative_to(ROOT)
        raise RingmasterError(f"{where} is another job's of the same name: move it away, then try again")
    return folder


def _replay(
    job: FoundJob,
    made: Plan,
    folder: JobFolder,
    remotes: Mapping[str, Remote],
    reached: Reached,
    screen: Screen,
) -> int:
    """Of a job that has ended: fetch what isn't here yet, and show what its ranks printed."""
    followed = ClusterJob(made, folder, remotes, reached.pins, screen.note, attach=True)
    followed.collect(Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED))
    followed.fetch_closed()
    _write_report(folder)
    for node in made.nodes:
        log = folder.logs / f"{node.name}.log"
        for line in log.read_bytes().split(b"\n") if log.exists() else ():
            rank, _, text = line.removeprefix(b"[").partition(b"] ")
            if rank.isdigit():
                screen.line(node.name, int(rank), text)
    screen.note(f"job {job.name} has ended: {job.state}; its results are in {shown(folder.path)}")
    return ExitCode.SUCCEEDED


def _write_report(folder: JobFolder) -> None:
    """The page of a job that somebody else has closed: made anew, from what was fetched."""
    if folder.summary.exists() and not folder.report.exists():
        summary = json.loads(folder.summary.read_text())
        folder.report.write_text(render(read_records(folder.metrics), summary), encoding="utf-8")


def _known(job: FoundJob, outcome: Outcome) -> Outcome:
    """The outcome, as somebody else has written it down where the job was closed on some of its nodes already."""
    with suppress(KeyError, TypeError, ValueError):
        return outcome_of(job.summary or {})
    return outcome


def _end(
    job: FoundJob,
    made: Plan,
    folder: JobFolder,
    followed: ClusterJob,
    outcome: Outcome,
    screen: Screen,
    started_at: float,
) -> int:
    ended_at = None if job.lasted_s is None else started_at + job.lasted_s
    summary = finish(folder, made, outcome, started_at, screen.note, ended_at=ended_at)
    followed.finish(outcome)
    if outcome.failure:
        screen.failure(outcome.failure, shown(folder.logs / f"{outcome.failure.node}.log"))
    screen.result(summary, shown(folder.report))
    return outcome.exit_code
