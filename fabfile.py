"""Fabric tasks: parse, call the launcher, report. `fab --list` shows them, `fab --help train` the flags of one.

A task's flags, with their help, are the lines for it in launcher/commands/options.txt, which is make's list too. Each
task imports what it needs itself: starting up is part of the time to the first step.
"""

import time
from typing import TYPE_CHECKING

from fabric import Connection

from launcher.commands.cli import leave_with
from launcher.commands.flags import with_flags

if TYPE_CHECKING:
    from launcher.commands.inventory import Inventory


@with_flags
def train(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Run a job on the inventory's nodes, follow it, end with its result."""
    started_at = time.time()
    from launcher.commands.options import TrainOptions
    from launcher.commands.train import run

    def deliver(inventory: "Inventory") -> int:
        from launcher.commands import provision as verb

        names = ",".join(host.name for host in inventory.hosts)
        options = verb.Options(inventory=flags["inventory"], limit=names, tags="train_image")
        return verb.run(verb.Verb.PROVISION, options, debug=debug, inventory=inventory)

    leave_with(lambda: run(TrainOptions(**flags), started_at=started_at, deliver=deliver), debug=debug)


@with_flags
def status(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Show the jobs on the nodes: state, age, step."""
    from launcher.commands import jobs

    leave_with(lambda: jobs.status(jobs.Options(**flags)), debug=debug)


@with_flags
def logs(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Follow a job to its end and bring its results home; Ctrl-C leaves it running."""
    from launcher.commands import jobs

    leave_with(lambda: jobs.logs(jobs.LogsOptions(**flags)), debug=debug)


@with_flags
def stop(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Stop a job everywhere, with a checkpoint, and prove that nothing of it is left."""
    from launcher.commands import jobs

    leave_with(lambda: jobs.stop(jobs.Options(**flags)), debug=debug)


@with_flags
def clean_runs(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Remove old jobs from runs/, all but the newest; asks first."""
    from launcher.commands import clean_runs as verb

    leave_with(lambda: verb.run(verb.Options(**flags)), debug=debug)


@with_flags
def provision(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Prepare every node for training; a second run changes nothing."""
    from launcher.commands.provision import Options, Verb, run

    leave_with(lambda: run(Verb.PROVISION, Options(**flags), debug=debug), debug=debug)


@with_flags
def verify(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Prove that every node is as provisioned, one line per node; changes nothing."""
    from launcher.commands.provision import Options, Verb, run

    leave_with(lambda: run(Verb.VERIFY, Options(**flags), debug=debug), debug=debug)


@with_flags
def reset(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Take back exactly what provisioning added."""
    from launcher.commands.provision import Options, Verb, run

    leave_with(lambda: run(Verb.RESET, Options(**flags), debug=debug), debug=debug)


@with_flags
def image(_connection: Connection, *, debug: bool, **flags: str) -> None:
    """Build the training image on the first node, and bring it to all of them."""
    from launcher.commands.image import ImageOptions, run

    leave_with(lambda: run(ImageOptions(**flags), debug=debug), debug=debug)


@with_flags
def bench(_connection: Connection, *, only: str, quick: str, inventory: str) -> None:
    """Measure, print the tables with the ratios, and write them into docs/performance.md."""
    from benchmarks import cli
    from launcher.base.values import switch

    leave_with(lambda: cli.run(only=only, quick=switch("QUICK", quick), inventory=inventory))
