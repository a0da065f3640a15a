"""The facts of nodes that are processes of this machine, and preflight checks of it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.inventory.rank_variables import interface_problems, sources_of
from launcher.job.facts import GLOO, NodeFacts
from launcher.job.plan import Plan
from launcher.job.request import Request
from launcher.local import machine


def gather(hosts: Sequence[Host]) -> list[NodeFacts]:
    """Return the facts of each host, in order; `gpus` are the whole machine's, not yet shared out.

    Raises:
        RingmasterError: a node's runtime is not `process`, or its address or network interface is not this machine's.
    """
    gpus, cores = machine.gpus(os.environ), machine.cores()
    facts = []
    for host in hosts:
        if host.runtime != "process":
            raise RingmasterError(
                f"{host.name}: ringmaster_runtime is '{host.runtime}'; only 'process' (nodes on this machine) can "
                "train so far: use inventory/local.yml"
            )
        address = str(host.settings.get("cluster_ip") or host.address)
        if not machine.is_this_machine(address):
            raise RingmasterError(
                f"{host.name}: {address} is not an address of this machine, where runtime 'process' runs; "
                "set ansible_host: 127.0.0.1"
            )
        interface = str(host.settings.get("interface") or machine.interface_of(address))
        if interface not in machine.interfaces():
            raise RingmasterError(
                f"{host.name}: this machine has no network interface '{interface}'; "
                f"it has {', '.join(machine.interfaces())}: fix ringmaster_interface"
            )
        facts.append(
            NodeFacts(
                name=host.name,
                runtime=host.runtime,
                address=address,
                interface=interface,
                gpus=gpus,
                cores=cores,
                settings=host.settings,
            )
        )
    return facts


def refuse_unknown_interfaces(facts: Sequence[NodeFacts], request: Request) -> None:
    """Refuse a variable that names a network interface which this machine doesn't have: Gloo dies of it.

    Raises:
        RingmasterError: there is one.
    """
    for fact in facts:
        sources = sources_of(request.environment, fact.settings, request.variables)
        if problems := interface_problems(sources, machine.interfaces()):
            raise RingmasterError(f"{fact.name}: {problems[0]}")


def refuse_unseen_gpus(plan: Plan, python: Path) -> None:
    """Never train on the CPU in silence where the plan counts GPUs, unless the inventory itself says `backend: gloo`.

    Args:
        python: what the ranks run with.

    Raises:
        RingmasterError: torch doesn't see the planned GPUs.
    """
    devices = sorted({device for node in plan.nodes for device in node.devices})
    if not devices or (plan.backend_chosen and plan.backend == GLOO):
        return
    answer = subprocess.run(
        [python, "-c", "import torch; print(torch.cuda.device_count(), torch.version.cuda)"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices)},
        capture_output=True,
        text=True,
        check=False,
    )
    count, _, cuda = answer.stdout.strip().partition(" ")
    if count != str(len(devices)):
        raise RingmasterError(
            f"{len(devices)} GPU(s) planned, torch (CUDA {cuda or '?'}) sees {count or 'none'}: is the driver new "
            "enough for it (nvidia-smi)? To train without them: GPUS=0",
            exit_code=ExitCode.NOT_STARTED,
        )
