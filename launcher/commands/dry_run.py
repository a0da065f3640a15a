"""`DRY_RUN=1`: the plan and the exact commands, as a shell would take them."""

import shlex

from launcher.job.container import command_line
from launcher.job.plan import Plan


def show(made: Plan) -> None:
    """Print what would be started on every node."""
    print(f"job {made.name}: {len(made.nodes)} node(s), world size {made.world_size}, backend {made.backend}")
    for note in made.notes:
        print(f"note: {note}")
    for node in made.nodes:
        devices = ", ".join(node.devices) or "none"
        print(
            f"\n# {node.name}: {node.runtime}, {node.address} ({node.interface}), {node.ranks} rank(s), GPUs: {devices}"
        )
        if node.container:
            print(command_line(node.container, node.argv, node.working_folder, node.environment))
            continue
        print(f"cd {shlex.quote(node.working_folder)}")
        for key, value in node.environment.items():
            print(f"export {key}={shlex.quote(value)}")
        print(shlex.join(node.argv))
    print("\ndry run: nothing was started")
