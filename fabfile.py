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


_NODES_HELP = {
    "inventory": "default: inventory/hosts.yml",
    "limit": "only these hosts of the inventory (an Ansible pattern)",
    "tags": "only the roles with these tags, such as firewall,docker_engine",
    "trust": "1: pin host keys that are seen for the first time without asking",
    "debug": "show tracebacks and all that Ansible has to say",
}
_CHANGES_HELP = {**_NODES_HELP, "check": "1: show what would be done, with differences, and change nothing"}


def _on_nodes(verb: str, debug: bool, **options: str) -> None:
    from launcher.provision import Options, Verb, run

    leave_with(lambda: run(Verb[verb], Options(**options), debug=debug), debug=debug)


@task(help={**_CHANGES_HELP, "nccl-debug": "NCCL's messages in every job: WARN, INFO, …; default: none"})
def provision(
    _connection: Connection,
    inventory: str = "",
    limit: str = "",
    tags: str = "",
    check: str = "",
    trust: str = "",
    nccl_debug: str = "",
    debug: bool = False,
) -> None:
    """Prepare every node for training; a second run changes nothing."""
    given = {"inventory": inventory, "limit": limit, "tags": tags, "check": check, "trust": trust}
    _on_nodes("PROVISION", debug, **given, nccl_debug=nccl_debug)


@task(help=_NODES_HELP)
def verify(
    _connection: Connection, inventory: str = "", limit: str = "", tags: str = "", trust: str = "", debug: bool = False
) -> None:
    """Prove that every node is as provisioned, one line per node; changes nothing."""
    _on_nodes("VERIFY", debug, inventory=inventory, limit=limit, tags=tags, trust=trust)


@task(help={**_CHANGES_HELP, "keep-packages": "1: leave the packages that provisioning installed"})
def reset(
    _connection: Connection,
    inventory: str = "",
    limit: str = "",
    tags: str = "",
    check: str = "",
    trust: str = "",
    keep_packages: str = "",
    debug: bool = False,
) -> None:
    """Take back exactly what provisioning added."""
    given = {"inventory": inventory, "limit": limit, "tags": tags, "check": check, "trust": trust}
    _on_nodes("RESET", debug, **given, keep_packages=keep_packages)


@task(help={"only": "which measurements: first-step, provision, image-delivery", "quick": "1: fewer repetitions"})
def bench(_connection: Connection, only: str = "", quick: str = "") -> None:
    """Measure, and print the tables with the ratios."""
    from benchmarks import cli
    from launcher.options import switch

    leave_with(lambda: cli.run(only=only, quick=switch("QUICK", quick)))
