"""`make train`: options -> inventory -> plan -> run -> summary."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from launcher.base import timings
from launcher.base.errors import BY_SIGNAL, ExitCode, RingmasterError, StoppedError
from launcher.base.terminal import visible
from launcher.base.values import switch
from launcher.commands import dry_run
from launcher.commands.asking import SSH, SUDO, VAULT
from launcher.commands.inventory import Inventory, open_inventory
from launcher.commands.job_file import to_toml, with_job_file
from launcher.commands.options import TrainOptions, arguments_refused, to_request
from launcher.follow.follower import Follower
from launcher.follow.outcome import Outcome
from launcher.follow.show.closing import show_end
from launcher.follow.show.screen import Screen
from launcher.follow.site import Site, SiteJob
from launcher.follow.summary import finish
from launcher.image.record import image_of, place
from launcher.inventory.hosts import Host
from launcher.job.checkpoint import Checkpoint, inherit
from launcher.job.folder import RUNS, Earlier, JobFolder, NameTakenError, choose, create, discard, earlier
from launcher.job.held import held
from launcher.job.plan import Plan
from launcher.job.request import Request, choose_nodes
from trainer.config import run_config as trainer_config
from trainer.errors import UserError

Deliver = Callable[[Inventory], int]


def run(options: TrainOptions, *, started_at: float, deliver: Deliver | None = None) -> int:
    """Plan the job, carry it out, and return its exit code.

    Args:
        started_at: unix time of the launcher's start, from which `first_step_s` and `wall_s` count.
        deliver: brings the recorded image to an inventory's nodes, and returns an exit code; None: a job whose nodes
            lack the image is refused.

    Raises:
        RingmasterError: the request (or its file), the inventory or a check is at fault; nothing was started.
    """
    options = with_job_file(options)
    from_job = earlier(RUNS, options.resume) if options.resume else None
    request = to_request(options, from_job)
    detach = switch("DETACH", options.detach)
    if request.program.bundled and {"-h", "--help"} & set(request.program.arguments):
        print(trainer_config.usage())
        return ExitCode.SUCCEEDED
    inventory = open_inventory(options.inventory, limit=options.limit, ask=options.ask, askable=(SUDO, SSH, VAULT))
    hosts = choose_nodes(inventory.hosts, request.nodes)
    request = _fitting(options, request, hosts, detach=detach)
    dry = switch("DRY_RUN", options.dry_run)
    timings.mark("inventory read")
    with _site(inventory, hosts, deliver) as site:
        timings.mark("connected")
        source = site.newest(from_job) if from_job else None
        plan, folder = _planned(options, request, site, source)
        timings.mark("nodes looked at, job planned")
        if dry:
            dry_run.show(plan)
            return ExitCode.SUCCEEDED
        plan, folder = _equipped(options, request, site, source, plan, folder)
        site.prepare(plan)
        again = _again(options, request, inventory, from_job)
        plan, folder = _created(options, request, site, source, plan, folder, again)
        with held(folder):
            try:
                site.place(plan, folder, request)
            except BaseException:
                discard(folder)
                raise
            timings.mark("folders made, code placed")
            return _carry_out(plan, folder, site, started_at, detach=detach)


def _fitting(options: TrainOptions, request: Request, hosts: Sequence[Host], *, detach: bool) -> Request:
    """Return the request as these nodes can have it.

    Raises:
        RingmasterError: the user asked for what is of no use on them.
    """
    if detach and any(host.runtime == "process" for host in hosts):
        raise RingmasterError(
            "DETACH=1: processes of this machine end with the launcher; only jobs on a cluster can go on without it"
        )
    if request.python is None or all(host.runtime == "process" for host in hosts):
        return request
    if options.rank_python:
        raise RingmasterError(
            "RANK_PYTHON: is for processes of this machine, and a cluster's ranks run with their image's Python: "
            "`make image` puts REQUIREMENTS=<file> or TORCH=<version> into it; ringmaster_image names one of yours"
        )
    return replace(request, python=None)  # it was that of the job it continues, which ran on this machine


@contextmanager
def _site(inventory: Inventory, hosts: Sequence[Host], deliver: Deliver | None) -> Iterator[Site]:
    """Yield the site of these nodes; its connections are closed afterwards."""
    runtimes = {host.runtime for host in hosts}
    if len(runtimes) > 1:
        raise RingmasterError(f"{inventory.path}: nodes with ringmaster_runtime process and docker can't be in one job")
    # Import only the site that is used: starting up is part of the time to the first step.
    if runtimes == {"process"}:
        from launcher.local.site import LocalSite

        yield LocalSite(hosts)
        return
    from launcher.cluster.site import ClusterSite
    from launcher.image.supply import Supply
    from launcher.ssh.pool import connected

    with connected(hosts, inventory.pins) as remotes:
        supply = deliver and Supply(
            record=place(inventory.path),
            pins=inventory.pins,
            named=bool(hosts[0].settings.get("image")),
            everyone=inventory.everyone,
            deliver=lambda names: _delivered(deliver, inventory, names),
            say=_say,
        )
        yield ClusterSite(
            hosts,
            remotes,
            inventory.pins,
            image=image_of(inventory.path, hosts),
            say=_say,
            everyone=inventory.everyone,
            supply=supply,
        )


def _delivered(deliver: Deliver, inventory: Inventory, names: Sequence[str]) -> int:
    """Have the image delivered; what the playbook's verb does with signals ends with it."""
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return deliver(replace(inventory, hosts=tuple(host for host in inventory.everyone() if host.name in names)))
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def _say(text: str) -> None:
    print(f"ringmaster: {visible(text)}", flush=True)


def _planned(options: TrainOptions, request: Request, site: Site, source: Checkpoint | None) -> tuple[Plan, JobFolder]:
    folder = choose(RUNS, options.name)
    plan = site.plan(folder, request, resumes=source is not None)
    _check_trainer_arguments(plan)
    return replace(plan, notes=(*plan.notes, *source.notes)) if source else plan, folder


def _created(
    options: TrainOptions,
    request: Request,
    site: Site,
    source: Checkpoint | None,
    plan: Plan,
    folder: JobFolder,
    again: str,
) -> tuple[Plan, JobFolder]:
    """Create the job's folder; where another launcher has taken the generated name, plan again under another one.

    Args:
        again: the content of its job.toml.

    Raises:
        NameTakenError: the user's own NAME is taken.
    """
    fill = partial(_fill, source, again, linked=request.program.bundled)
    while True:
        try:
            create(folder, plan, fill=fill)
            return plan, folder
        except NameTakenError:
            if options.name:
                raise
            plan, folder = _planned(options, request, site, source)
            plan, folder = _equipped(options, request, site, source, plan, folder)


def _equipped(
    options: TrainOptions, request: Request, site: Site, source: Checkpoint | None, plan: Plan, folder: JobFolder
) -> tuple[Plan, JobFolder]:
    """Install what the plan takes for granted; return the plan that was made with it."""
    return _planned(options, request, site, source) if site.equip(plan) else (plan, folder)


def _again(options: TrainOptions, request: Request, inventory: Inventory, from_job: Earlier | None) -> str:
    """Return the file that starts the same job again; empty, with a word to the user, where there can't be one."""
    continues = ""
    if from_job:
        continues = str(from_job.folder.path) if "/" in options.resume else from_job.folder.name
    if options.module and not options.code:  # it was found from the folder that the user was in
        options = replace(options, code=str(request.program.root))
    try:
        return to_toml(options, inventory=inventory.path, continues=continues)
    except UnicodeEncodeError:
        _say("an option holds bytes that are not UTF-8, which TOML can't: this job gets no job.toml to run it again")
        return ""


def _fill(source: Checkpoint | None, again: str, folder: JobFolder, *, linked: bool) -> None:
    if again:
        head = f"# What job {folder.name} was started with; make train JOB=<this file> starts the same once more.\n"
        folder.job_file.write_text(head + again, encoding="utf-8")
    if source and not source.node:  # what a node has goes from there to the other nodes
        inherit(source, folder, linked=linked)


def _check_trainer_arguments(plan: Plan) -> None:
    """Have the bundled trainer check its arguments against the plan, before anything is brought or starts.

    Raises:
        RingmasterError: it refuses them.
    """
    if not plan.bundled:
        return
    try:
        config = trainer_config.parse(plan.arguments, plan.nodes[0].environment)
        trainer_config.validate_world(config, nodes=len(plan.nodes), world_size=plan.world_size)
    except UserError as error:
        raise arguments_refused(error) from error


def _carry_out(plan: Plan, folder: JobFolder, site: Site, started_at: float, *, detach: bool) -> int:
    job = site.job(plan, folder)
    with Screen(plan, folder.logs) as screen:
        screen.banner(site.versions)
        if detach:
            _start_alone(job, plan, folder)
            screen.note(f"job {plan.name} runs; make logs NAME={plan.name} follows it, make stop ends it")
            return ExitCode.SUCCEEDED
        try:
            outcome = Follower(plan, folder, job.runtime, screen, on_stop=job.mark_stopped).run()
        except Exception:
            if job.runtime.survives:
                screen.note(f"job {plan.name} goes on, if it was started: see make status, make logs, make stop")
            else:
                failed = Outcome(state="failed", exit_code=ExitCode.FAILED)
                finish(folder, plan, failed, started_at, screen.note, ended_at=time.time())
            raise
        screen.hurried = outcome.exit_code in BY_SIGNAL
        outcome, complete = _collected(job, outcome, plan, screen)
        if outcome.state == "detached":
            return outcome.exit_code
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the rest is quick, and must be written
            signal.signal(signum, signal.SIG_IGN)
        summary = finish(folder, plan, outcome, started_at, screen.note, clock_s=job.clock_s, ended_at=time.time())
        timings.write(started_at)
        if complete:
            job.finish(outcome, summary)
        show_end(screen, outcome, summary, folder)
        return outcome.exit_code


def _collected(job: SiteJob, outcome: Outcome, plan: Plan, screen: Screen) -> tuple[Outcome, bool]:
    """Fetch the results; return the outcome, and whether the user let the fetching finish."""
    try:
        return job.collect(outcome), True
    except (KeyboardInterrupt, StoppedError):
        screen.note(f"the job has ended, its results are not all here: make logs NAME={plan.name} fetches the rest")
        return outcome, False


def _start_alone(job: SiteJob, plan: Plan, folder: JobFolder) -> None:
    """Start a job that nobody follows; if it can't be started, leave nothing of it, here or on the nodes."""
    try:
        job.runtime.start(plan.nodes, plan.port)
    except BaseException:
        job.finish(Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, started=False), {})
        discard(folder)
        raise
    job.runtime.release()
