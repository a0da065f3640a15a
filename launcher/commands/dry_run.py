"""`DRY_RUN=1`: the plan and the exact commands, in a form that a shell accepts."""

import shlex

from launcher.base.terminal import in_one_line, visible
from launcher.job.container import command_line
from launcher.job.plan import Plan


def show(plan: Plan) -> None:
    """Print what a start of `plan` would run on each node."""
    print(f"job {plan.name}: {len(plan.nodes)} node(s), world size {plan.world_size}, backend {plan.backend}")
    for note in plan.notes:
        print(f"note: {visible(note)}")
    for node in plan.nodes:
        devices = ", ".join(node.devices) or "none"
        what = f"{node.name}: {node.runtime}, {node.address} ({node.interface}), {node.ranks} rank(s), GPUs: {devices}"
        print(f"\n# {in_one_line(what)}")
        if node.container:
            print(command_line(node.container, node.argv, node.working_folder, node.environment))
            continue
        print(f"cd {shlex.quote(node.working_folder)}")
        for key, value in node.environment.items():
            print(f"export {key}={shlex.quote(value)}")
        print(shlex.join(node.argv))
    print("\ndry run: nothing was started")
