"""Fabric tasks: parse, call the launcher, report. `fab --list` shows them, `fab --help train` the flags of one."""

import time

from fabric import Connection, task

from launcher.cli import leave_with


@task(
    help={
        "nodes": "how many nodes, in the inventory's order; default 2, or all where there are fewer",
        "gpus": "per node: all, a count, or device ids such as 0,2",
        "script": "your own Python file; default: the bundled trainer",
        "args": "arguments for the script in one string, quoted as in a shell",
        "data": "your own copy of the data set, instead of fetching it",
        "name": "the job's name; default: the time",
        "resume": "a job to continue from, with its script and arguments unless given",
        "inventory": "default: inventory/hosts.yml if there is one, else inventory/local.yml",
        "limit": "only these hosts of the inventory (an Ansible pattern)",
        "launch-style": "1: the script parses --local-rank; 0: it does not; default: look into it",
        "debug": "show tracebacks",
        "dry-run": "1: print the plan and the exact commands, start nothing",
    }
)
def train(
    _connection: Connection,
    nodes: str = "",
    gpus: str = "",
    script: str = "",
    args: str = "",
    data: str = "",
    name: str = "",
    resume: str = "",
    inventory: str = "",
    limit: str = "",
    launch_style: str = "",
    dry_run: str = "",
    debug: bool = False,
) -> None:
    """Run a job on the inventory's nodes, follow it, end with its result."""
    started_at = time.time()
    from launcher.options import TrainOptions
    from launcher.train import run

    options = TrainOptions(
        nodes=nodes,
        gpus=gpus,
        script=script,
        args=args,
        data=data,
        name=name,
        resume=resume,
        inventory=inventory,
        limit=limit,
        launch_style=launch_style,
        dry_run=dry_run,
    )
    leave_with(lambda: run(options, started_at=started_at), debug=debug)


@task(help={"only": "which measurements: first-step", "quick": "1: fewer repetitions"})
def bench(_connection: Connection, only: str = "", quick: str = "") -> None:
    """Measure, and print the tables with the ratios."""
    from benchmarks import cli
    from launcher.options import switch

    leave_with(lambda: cli.run(only=only, quick=switch("QUICK", quick)))
