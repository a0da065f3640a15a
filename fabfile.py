"""Fabric tasks: parse, call the launcher, report. `fab --list` shows them, `fab --help train` the flags of one."""

import time

from fabric import Connection, task

from launcher.commands.cli import leave_with


@task(
    help={
        "nodes": "how many nodes, in the inventory's order; default 2, or all where there are fewer",
        "gpus": "per node: all, a count, or device ids such as 0,2",
        "ranks": "processes per node; default: one for each GPU; 1: for scripts that start their own",
        "script": "your own Python file; default: the bundled trainer",
        "args": "arguments for the script in one string, quoted as in a shell",
        "data": "your own copy of the data set, instead of fetching it",
        "name": "the job's name; default: the time",
        "resume": "a job to continue from, with its script and arguments unless given",
        "inventory": "default: inventory/hosts.yml if there is one, else inventory/local.yml",
        "limit": "only these hosts of the inventory (an Ansible pattern)",
        "launch-style": "1: the script parses --local-rank; 0: it does not; default: look into it",
        "secrets": "a file of KEY=value lines, given to the script and seen nowhere else",
        "detach": "1: start and return; fab logs follows it, fab stop stops it",
        "debug": "show tracebacks",
        "dry-run": "1: print the plan and the exact commands, start nothing",
    }
)
def train(
    _connection: Connection,
    nodes: str = "",
    gpus: str = "",
    ranks: str = "",
    script: str = "",
    args: str = "",
    data: str = "",
    name: str = "",
    resume: str = "",
    inventory: str = "",
    limit: str = "",
    launch_style: str = "",
    secrets: str = "",
    detach: str = "",
    dry_run: str = "",
    debug: bool = False,
) -> None:
    """Run a job on the inventory's nodes, follow it, end with its result."""
    started_at = time.time()
    from launcher.commands.options import TrainOptions
    from launcher.commands.train import run

    options = TrainOptions(
        nodes=nodes,
        gpus=gpus,
        ranks=ranks,
        script=script,
        args=args,
        data=data,
        name=name,
        resume=resume,
        inventory=inventory,
        limit=limit,
        launch_style=launch_style,
        secrets=secrets,
        detach=detach,
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
    from launcher.commands.provision import Options, Verb, run

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


@task(
    help={
        "inventory": "default: inventory/hosts.yml",
        "limit": "only these hosts of the inventory (an Ansible pattern); the first one builds",
        "base": "the image to build on; default: debian:bookworm-slim, or the same made here where it can't be pulled",
        "cuda": "12: for drivers older than 580; default: the newest",
        "requirements": "a requirements.txt of what your scripts need besides",
        "debug": "show tracebacks and all that Ansible has to say",
    }
)
def image(
    _connection: Connection,
    inventory: str = "",
    limit: str = "",
    base: str = "",
    cuda: str = "",
    requirements: str = "",
    debug: bool = False,
) -> None:
    """Build the training image on the first node, and bring it to all of them."""
    from launcher.commands.image import ImageOptions, run

    options = ImageOptions(inventory=inventory, limit=limit, base=base, cuda=cuda, requirements=requirements)
    leave_with(lambda: run(options, debug=debug), debug=debug)


_JOBS_HELP = {
    "name": "the job; default: the one that runs",
    "inventory": "default: inventory/hosts.yml",
    "limit": "only these hosts of the inventory (an Ansible pattern)",
    "debug": "show tracebacks",
}


@task(help=_JOBS_HELP)
def status(_connection: Connection, name: str = "", inventory: str = "", limit: str = "", debug: bool = False) -> None:
    """The jobs on the nodes: state, age, step."""
    from launcher.commands import jobs

    options = jobs.Options(name=name, inventory=inventory, limit=limit)
    leave_with(lambda: jobs.status(options), debug=debug)


@task(help=_JOBS_HELP)
def logs(_connection: Connection, name: str = "", inventory: str = "", limit: str = "", debug: bool = False) -> None:
    """Follow a job to its end and bring its results home; Ctrl-C leaves it running."""
    from launcher.commands import jobs

    options = jobs.Options(name=name, inventory=inventory, limit=limit)
    leave_with(lambda: jobs.logs(options), debug=debug)


@task(help=_JOBS_HELP)
def stop(_connection: Connection, name: str = "", inventory: str = "", limit: str = "", debug: bool = False) -> None:
    """Stop a job everywhere, with a checkpoint, and prove that nothing of it is left."""
    from launcher.commands import jobs

    options = jobs.Options(name=name, inventory=inventory, limit=limit)
    leave_with(lambda: jobs.stop(options), debug=debug)


_BENCH_HELP = {
    "only": "which, commas between: input, step, stream, recipe, scaling, report, gpu, first-step (these without it); "
    "provision, launch, image-delivery; pages: none, docs/ from what is stored",
    "quick": "1: fewer repetitions; the page goes to runs/bench-quick, not to docs",
    "inventory": "launch: the cluster it is measured on; default: inventory/lab.yml",
}


@task(help=_BENCH_HELP)
def bench(_connection: Connection, only: str = "", quick: str = "", inventory: str = "") -> None:
    """Measure, print the tables with the ratios, and write them into docs/performance.md."""
    from benchmarks import cli
    from launcher.commands.options import switch

    leave_with(lambda: cli.run(only=only, quick=switch("QUICK", quick), inventory=inventory))
