"""The variables of a node's ranks: what tunes their communication, and what the job itself tells them. Pure."""

import shlex

from launcher.job.facts import GLOO, Job, NodeFacts, Places
from launcher.job.node_arguments import node_arguments
from launcher.job.program import Program
from launcher.on_node.rank import ARGUMENTS, CODE_PATH, LOCAL_RANK_FLAG, OWN_PORT, PROGRAM, encoded

TUNABLE = frozenset({"OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
"""Variables that the plan chooses unless the user has set them."""


def rank_environment(job: Job, node_rank: int) -> dict[str, str]:
    """Return the variables of a node's ranks: of two with one name, the later one wins."""
    fact = job.facts[node_rank]
    own = _own_variables(job, fact)
    words = encoded(shlex.join(node_arguments(job, node_rank, own)))
    return {**_tuning(job, fact), **own, ARGUMENTS: words}


def _tuning(job: Job, fact: NodeFacts) -> dict[str, str]:
    """Return the variables that others may set too: a shell's lose to the inventory's, and these to the job's (ENV)."""
    variables = {
        **(fact.container.comm_env if fact.container else {}),
        "GLOO_SOCKET_IFNAME": fact.interface,
        "NCCL_SOCKET_IFNAME": f"={fact.interface}",  # without "=" NCCL matches by prefix: eth1 would take eth10 too
    }
    if ":" in fact.address:
        variables["NCCL_SOCKET_FAMILY"] = "AF_INET6"  # it takes IPv4 wherever the interface has both
    if fact.by_host_name:
        del variables["GLOO_SOCKET_IFNAME"]
    return {
        **variables,
        # All ranks of the machine together use its cores once; torchrun's own default is 1, or all for a lone rank.
        "OMP_NUM_THREADS": str(max(1, fact.cores // job.processes_on_machine_of(fact))),
        "PYTHONFAULTHANDLER": "1",
        # torch 2.15's new NCCL backend takes its GPU from LOCAL_RANK where it is given none. All processes that a
        # program starts itself inherit one LOCAL_RANK, and so would share a GPU: they get the old backend.
        **({"TORCH_DIST_USE_NCCL2": "0"} if job.own_processes else {}),
        **{key: value for key, value in job.request.environment.items() if key in TUNABLE},
        **{str(key): str(value) for key, value in (fact.settings.get("comm_env") or {}).items()},
        **job.request.variables,
    }


def _own_variables(job: Job, fact: NodeFacts) -> dict[str, str]:
    """Return the variables that are the job's own, which nobody may override."""
    places, program = job.places, job.request.program
    variables = {
        "PYTHONUNBUFFERED": "1",
        "RUN_DIR": str(places.run),
        # A user's script finds the user's data there; the bundled trainer unpacks into a folder that is ours.
        "DATA_DIR": job.own_data if job.own_data and not program.bundled else str(places.data),
        "CHECKPOINT_DIR": str(places.checkpoints),
        "RINGMASTER_JOB": job.name,
        "RINGMASTER_NODE": fact.name,
        "RINGMASTER_BACKEND": job.backend,
        # The GPUs that must be there. An inventory that says gloo itself means to do without, should they not be.
        "RINGMASTER_GPUS": "0" if job.backend_chosen and job.backend == GLOO else str(len(fact.gpus)),
        **_program_words(program, places),
    }
    if job.own_processes:
        variables[OWN_PORT] = str(job.own_port)
    if job.resumes:
        variables["RINGMASTER_RESUME"] = "1"
    if job.own_data:
        variables["RINGMASTER_DATA"] = job.own_data
    if places.secrets:
        variables["RINGMASTER_SECRETS"] = str(places.secrets)
    return variables


def _program_words(program: Program, places: Places) -> dict[str, str]:
    """Return the program for `on_node/rank.py`, in variables: torchrun would rewrite `$$` and `${local_rank}`."""
    words = {PROGRAM: encoded(shlex.join([str(places.python), *program.words(places.code)]))}
    if program.importable:
        words[CODE_PATH] = encoded(":".join(str(places.code / folder) for folder in program.importable))
    if program.local_rank_flag:
        words[LOCAL_RANK_FLAG] = program.local_rank_flag
    return words
