"""`make train`: options -> inventory -> plan -> run -> summary."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from launcher.base import timings
from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.commands import dry_run
from launcher.commands.inventory import inventory_path, pinned_file
from launcher.commands.options import TrainOptions, switch, to_request
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome
from launcher.follow.screen import Screen, shown
from launcher.follow.site import Site, SiteJob
from launcher.follow.summary import finish
from launcher.image.record import image_of
from launcher.inventory import hosts as inventory
from launcher.inventory.hosts import Host
from launcher.job.folder import RUNS, Earlier, JobFolder, NameTakenError, choose, create, discard, earlier
from launcher.job.plan import Plan
from launcher.job.request import Request, choose_nodes
from trainer.config import run_config as trainer_config
from trainer.errors import UserError


def run(options: TrainOptions, *, started_at: float) -> int:
    """Plan the job, carry it out, and return its exit code.

    Args:
        started_at: unix time of the launcher's start, from which `first_step_s` and `wall_s` count.

    Raises:
        RingmasterError: the request, the inventory or a check before the start is at fault; nothing was started.
    """
    from_job = earlier(RUNS, options.resume) if options.resume else None
    asked = to_request(options, from_job)
    detach = switch("DETACH", options.detach)
    if asked.program.script is None and {"-h", "--help"} & set(asked.program.arguments):
        print(trainer_config.usage())
        return ExitCode.SUCCEEDED
    path = inventory_path(options.inventory)
    hosts = choose_nodes(inventory.read(path, limit=options.limit), asked.nodes)
    timings.mark("inventory read")
    with _site(path, hosts) as site:
        timings.mark("connected")
        made, folder = _planned(options, asked, site, from_job)
        timings.mark("nodes looked at, job planned")
        if switch("DRY_RUN", options.dry_run):
            dry_run.show(made)
            return ExitCode.SUCCEEDED
        if detach and made.nodes[0].container is None:
            raise RingmasterError("DETACH=1: processes on this machine end with the launcher; jobs on a cluster go on")
        site.prepare(made)
        made, folder = _created(options, asked, site, from_job, made, folder)
        try:
            site.place(made, folder, asked)
        except BaseException:
            discard(folder)
            raise
        timings.mark("folders made, code placed")
        return _carry_out(made, folder, site, started_at, detach=detach)


@contextmanager
def _site(path: Path, hosts: Sequence[Host]) -> Iterator[Site]:
    """The place where these nodes are; connections to them end with it."""
    runtimes = {host.runtime for host in hosts}
    if len(runtimes) > 1:
        raise RingmasterError(f"{path}: nodes with ringmaster_runtime process and docker can't be in one job")
    # Only what is used is imported: torch-free start-up is part of the time to the first step.
    if runtimes == {"process"}:
        from launcher.local.site import LocalSite

        yield LocalSite(hosts)
        return
    from launcher.cluster.site import ClusterSite
    from launcher.ssh.pool import connected

    pins = pinned_file(path)
    with connected(hosts, pins) as remotes:
        yield ClusterSite(hosts, remotes, pins, image=image_of(path, hosts), say=_say)


def _say(text: str) -> None:
    print(f"ringmaster: {text}", flush=True)


def _planned(options: TrainOptions, asked: Request, site: Site, from_job: Earlier | None) -> tuple[Plan, JobFolder]:
    folder = choose(RUNS, options.name)
    made = site.plan(folder, asked, resumes=from_job is not None)
    _check_trainer_arguments(made)
    return made, folder


def _created(
    options: TrainOptions, asked: Request, site: Site, from_job: Earlier | None, made: Plan, folder: JobFolder
) -> tuple[Plan, JobFolder]:
    """Make the job's folder; where another launcher took a name that we made up, make up another."""
    while True:
        try:
            create(folder, made, inherits=from_job.folder if from_job else None)
            return made, folder
        except NameTakenError:
            if options.name:
                raise
            made, folder = _planned(options, asked, site, from_job)


def _check_trainer_arguments(made: Plan) -> None:
    """Let the bundled trainer look at its arguments before anything starts."""
    if made.script is not None:
        return
    try:
        parsed = trainer_config.parse(made.arguments, made.nodes[0].environment)
        trainer_config.validate_world(parsed, nodes=len(made.nodes), world_size=made.world_size)
    except UserError as error:
        raise RingmasterError(f"ARGS: {error}", exit_code=ExitCode(error.exit_code)) from error


def _carry_out(made: Plan, folder: JobFolder, site: Site, started_at: float, *, detach: bool) -> int:
    job = site.job(made, folder)
    with Screen(made) as screen:
        screen.banner(site.versions)
        if detach:
            _start_alone(job, made, folder)
            screen.note(f"job {made.name} runs; make logs NAME={made.name} follows it, make stop ends it")
            return ExitCode.SUCCEEDED
        try:
            outcome = Follower(made, folder, job.runtime, screen).run()
        except Exception:
            if job.runtime.survives:
                screen.note(f"job {made.name} goes on, if it was started: see make status, make logs, make stop")
            else:
                failed = Outcome(state="failed", exit_code=ExitCode.FAILED)
                finish(folder, made, failed, started_at, screen.note)
            raise
        outcome, whole = _collected(job, outcome, made, screen)
    if outcome.state == "detached":
        return outcome.exit_code
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # what is left takes little, and must be written
        signal.signal(signum, signal.SIG_IGN)
    summary = finish(folder, made, outcome, started_at, screen.note, clock_s=job.clock_s)
    timings.write(started_at)
    if whole:
        job.finish(outcome)
    if outcome.failure:
        screen.failure(outcome.failure, shown(folder.logs / f"{outcome.failure.node}.log"))
    screen.result(summary, shown(folder.report))
    return outcome.exit_code


def _collected(job: SiteJob, outcome: Outcome, made: Plan, screen: Screen) -> tuple[Outcome, bool]:
    """Bring the results home; return the outcome, and whether the user let that go to its end."""
    try:
        return job.collect(outcome), True
    except (KeyboardInterrupt, StoppedError):
        screen.note(f"the job has ended, its results are not all here: make logs NAME={made.name} fetches the rest")
        return outcome, False


def _start_alone(job: SiteJob, made: Plan, folder: JobFolder) -> None:
    """Start a job that nobody follows; one that can't be started leaves nothing, here or there."""
    try:
        job.runtime.start(made.nodes, made.port)
    except BaseException:
        job.finish(Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, started=False))
        discard(folder)
        raise
    job.runtime.release()
