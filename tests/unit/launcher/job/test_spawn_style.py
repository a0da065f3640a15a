"""Which scripts start their own processes: told from their source, and only where they can't be torchrun's."""

from pathlib import Path

import pytest

from launcher.job.program import Program, user_script
from launcher.job.spawn_style import SpawnStyle

SPAWNS = """
import torch.distributed as dist
import torch.multiprocessing as mp
def work(place, world):
    dist.init_process_group("gloo", rank=place, world_size=world)
if __name__ == "__main__":
    mp.spawn(work, (2,), nprocs=2)
"""
BY_HAND = """
import argparse, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int)
parser.add_argument("--world-size", type=int)
parser.add_argument("--init-method", default="tcp://127.0.0.1:23456")
args = parser.parse_args()
dist.init_process_group("gloo", args.init_method, rank=args.rank, world_size=args.world_size)
"""
OWN_PORT = """
import os, multiprocessing, torch.distributed as dist
def work(place, world):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=place, world_size=world)
for place in range(2):
    multiprocessing.Process(target=work, args=(place, 2)).start()
"""
# As in PyTorch's imagenet example: one program for every way of starting it.
SWITCH = """
import argparse, os, torch.distributed as dist, torch.multiprocessing as mp
parser = argparse.ArgumentParser()
for each in (parser,):
    each.add_argument("--rank")
    each.add_argument("--world-size")
    each.add_argument("--dist-url")
    each.add_argument("--multiprocessing-distributed", action="store_true")
def work(gpu, args):
    if args.dist_url == "env://":
        args.rank = int(os.environ["RANK"])
    dist.init_process_group("nccl", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
args = parser.parse_args()
mp.spawn(work, (args,), nprocs=2) if args.multiprocessing_distributed else work(0, args)
"""
RPC = """
from torch.distributed import rpc
from torch.multiprocessing import spawn as run
def work(place, world):
    rpc.init_rpc(f"worker{place}", rank=place, world_size=world)
run(work, (4,), nprocs=4)
"""


def program(folder: Path, text: str, *arguments: str, style: str = "") -> Program:
    path = folder / "train.py"
    path.write_text(text)
    return user_script(path, arguments, launch_style=style)


@pytest.mark.parametrize(
    "imports",
    [
        "import torch.multiprocessing as mp",
        "from torch import multiprocessing as mp",
        "import torch as t\nclass mp: pass\nmp.spawn = t.multiprocessing.spawn\nt.multiprocessing.spawn(work)",
        "import torch.multiprocessing\ntorch.multiprocessing.start_processes(work)",
        "from torch.multiprocessing import start_processes as begin\nbegin(work)",
        "from torch.multiprocessing.spawn import spawn\nspawn(work)",
    ],
)
def test_a_call_is_found_under_any_name(tmp_path: Path, imports: str) -> None:
    found = program(tmp_path, SPAWNS.replace("import torch.multiprocessing as mp", imports)).spawn
    assert found == SpawnStyle(starts=True, alone=True)


def test_options_for_the_nodes_number_are_found_with_their_spelling(tmp_path: Path) -> None:
    assert program(tmp_path, BY_HAND).spawn == SpawnStyle(rank="--rank", nodes="--world-size", url="--init-method")
    underscored = BY_HAND.replace("--world-size", "--world_size").replace("--init-method", "--master_addr")
    found = program(tmp_path, underscored).spawn
    assert found == SpawnStyle(rank="--rank", nodes="--world_size", address="--master_addr")


def test_all_names_of_its_options_are_found(tmp_path: Path) -> None:
    text = BY_HAND.replace("'--rank'", "'-r', '--rank'").replace('"--rank"', '"-r", "--rank"')
    found = program(tmp_path, text + "parser.add_argument('-b', '--batch')\n").spawn
    assert found is not None
    assert found.synonyms == {("-r", "--rank")}


def test_the_nodes_own_options_go_before_those_of_processes(tmp_path: Path) -> None:
    options = "".join(f"parser.add_argument('{name}')\n" for name in ("--nodes", "--node_rank"))
    found = program(tmp_path, SPAWNS + BY_HAND.replace("args = ", f"{options}args = ", 1)).spawn
    assert found is not None
    assert (found.nodes, found.rank, found.starts) == ("--nodes", "--node_rank", True)


def test_a_count_without_a_number_is_one_machines(tmp_path: Path) -> None:
    found = program(
        tmp_path, SPAWNS + "import argparse\nargparse.ArgumentParser().add_argument('--world_size')\n"
    ).spawn
    assert found == SpawnStyle(starts=True, alone=True)


@pytest.mark.parametrize("text", [OWN_PORT, RPC])
def test_other_programs_that_start_their_own(tmp_path: Path, text: str) -> None:
    assert program(tmp_path, text).spawn is not None


def test_a_program_for_every_way_is_told_by_its_switch(tmp_path: Path) -> None:
    assert program(tmp_path, SWITCH).spawn is None
    found = program(tmp_path, SWITCH, "--multiprocessing-distributed", "data").spawn
    assert found == SpawnStyle(rank="--rank", nodes="--world-size", url="--dist-url", starts=True)


@pytest.mark.parametrize(
    "more",
    [
        "import os\nrank = int(os.environ['RANK'])",
        "import os\nif 'LOCAL_RANK' in os.environ: work(0, 1)",
        "import os\nrank = os.getenv('WORLD_SIZE', '1')",
        "import os\nrank = os.environ.get('SLURM_PROCID')",
        "dist.init_process_group()",
        "import deepspeed",
        "from mpi4py import MPI",
        "import argparse\nargparse.ArgumentParser().add_argument('--local_rank')",
    ],
)
@pytest.mark.parametrize(
    "text", [SPAWNS, OWN_PORT, BY_HAND, RPC.replace("rpc\n", "rpc\nimport torch.distributed as dist\n")]
)
def test_a_program_that_may_be_torchruns_is_left_alone(tmp_path: Path, text: str, more: str) -> None:
    assert program(tmp_path, f"{text}\n{more}\n").spawn is None


def test_a_helper_beside_it_that_reads_the_variables_counts_too(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("import os\ndef rank(): return int(os.environ.get('RANK', 0))\n")
    assert program(tmp_path, f"import utils\n{SPAWNS}").spawn is None


def test_a_module_beside_it_may_start_them_but_a_package_only_could(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(SPAWNS)
    assert program(tmp_path, "import engine").spawn is not None
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").write_text("from .launch import *")
    (tmp_path / "library" / "launch.py").write_text(SPAWNS)
    assert program(tmp_path, "from library.launch import work").spawn is None


def test_variables_it_sets_itself_are_not_read(tmp_path: Path) -> None:
    sets = "os.environ['RANK'] = str(place)\n    os.environ.update({'WORLD_SIZE': '2'}, LOCAL_RANK='0')\n    "
    text = SPAWNS.replace("    dist.init", f"    {sets}dist.init").replace('"gloo", rank=place, world_size=world', "")
    assert program(tmp_path, f"import os\n{text}").spawn is not None


@pytest.mark.parametrize(
    "text",
    [
        "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)",  # it prepares data, say
        "import torch.multiprocessing as mp\nmp.Process(target=print).start()",
        "import os\nos.environ['MASTER_PORT'] = '1'",
        SPAWNS.replace("torch.multiprocessing", "somebody.elses"),
        OWN_PORT.replace("import os,", "import os\nif 'MASTER_PORT' in os.environ: pass\nimport"),
        BY_HAND.replace('"--rank"', '"--lora-rank"'),
        "",
    ],
)
def test_what_only_resembles_one(tmp_path: Path, text: str) -> None:
    assert program(tmp_path, text).spawn is None


def test_the_user_knows_better(tmp_path: Path) -> None:
    assert program(tmp_path, SPAWNS, style="0").spawn is None
    assert program(tmp_path, SPAWNS, style="1").spawn is None
    assert program(tmp_path, "", style="spawn").spawn == SpawnStyle(), "of which nothing is known"
    assert program(tmp_path, BY_HAND + "import os\nos.environ['RANK']", style="spawn").spawn == SpawnStyle(
        rank="--rank", nodes="--world-size", url="--init-method"
    )
