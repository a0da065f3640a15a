"""Endings by an exception, or by an exit code."""

from tests.e2e.endings.ending import Ending, Expected

NODE1, NODE2 = ("node1", 0), ("node2", 1)

RAISED = (
    Ending(
        name="at-once",
        script="""
if RANK == 1:
    raise RuntimeError("no such table")
time.sleep(600)
""",
        expected=Expected(culprits=(NODE2,), reason=("RuntimeError: no such table",)),
    ),
    Ending(
        name="import-error-on-one-node",
        script="""
if RANK == 0:
    import no_such_module
time.sleep(600)
""",
        expected=Expected(culprits=(NODE1,), reason=("ModuleNotFoundError: No module named 'no_such_module'",)),
    ),
    Ending(
        name="late-exception",
        # All is done, and the other rank has long ended well.
        script="""
join()
add()
dist.destroy_process_group()
mark("done")
if RANK == 1:
    marked("done")
    other = int(Path(os.environ["RUN_DIR"], "done-0").read_text())
    while Path(f"/proc/{other}").exists():
        time.sleep(0.05)
    raise OSError("the results can't be written")
os._exit(0)
""",
        expected=Expected(culprits=(NODE2,), reason=("OSError: the results can't be written",)),
    ),
    Ending(
        name="exception-group",
        script="""
join()
if RANK == 1:
    raise ExceptionGroup("while loading", [ValueError("bad image 7"), TypeError("no label")])
add()
""",
        expected=Expected(culprits=(NODE2,), reason=("bad image 7",), never=("+-", "+ Exception", "| ")),
        quick=True,
    ),
    Ending(
        name="data-worker-raises",
        script="""
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5 and RANK == 0:
            raise KeyError("no image 5")
        return index

join(60)
for batch in DataLoader(Images(), batch_size=2, num_workers=1):
    add()
time.sleep(600)
""",
        expected=Expected(culprits=(NODE1,), reason=("no image 5",)),
    ),
    Ending(
        name="spawned-process-raises",
        ranks=1,
        script="""
import torch.multiprocessing as processes

def work(place):
    if place == 1 and RANK == 1:
        raise ValueError("bad part 1")
    time.sleep(600)

if __name__ == "__main__":
    processes.spawn(work, nprocs=2)
""",
        expected=Expected(culprits=(NODE2,), reason=("bad part 1",)),
    ),
    Ending(
        name="exit-3",
        script="""
if RANK == 1:
    print("nothing to do here", flush=True)
    sys.exit(3)
time.sleep(600)
""",
        expected=Expected(culprits=(NODE2,), reason=("exited with code 3",)),
    ),
    Ending(
        name="exit-7-without-a-word",
        script="""
join()
if RANK == 0:
    os._exit(7)
add()
""",
        expected=Expected(culprits=(NODE1,), reason=("exited with code 7",)),
    ),
    Ending(
        name="bad-arguments",
        arguments="--epoch-count 3",
        script="""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs")
parser.parse_args()
""",
        expected=Expected(culprits=(NODE1, NODE2), reason=("unrecognized arguments: --epoch-count 3",)),
    ),
    Ending(
        name="keyboard-interrupt-of-its-own",
        script="""
if RANK == 1:
    raise KeyboardInterrupt
time.sleep(600)
""",
        expected=Expected(culprits=(NODE2,)),
    ),
    Ending(
        name="two-at-once",
        script="""
join()
raise ValueError(f"bad batch on rank {RANK}")
""",
        expected=Expected(culprits=(NODE1, NODE2), reason=("ValueError: bad batch on rank",)),
    ),
    Ending(
        name="one-of-two-ranks-of-a-node",
        # torchrun itself ends the neighbour with SIGTERM, and that is no cause.
        ranks=2,
        script="""
join(60)
if RANK == 3:
    raise ValueError("bad batch 12")
add()
""",
        expected=Expected(culprits=(("node2", 3),), reason=("ValueError: bad batch 12",), never=("SIGTERM",)),
        quick=True,
    ),
    Ending(
        name="a-neighbour-that-raises-when-told-to-end",
        nodes=1,
        ranks=2,
        script="""
def protest(*_):
    raise RuntimeError("told to end in the middle of a step")

signal.signal(signal.SIGTERM, protest)
mark("deaf")
if RANK == 0:
    marked("deaf")
    raise ValueError("bad batch 3")
time.sleep(600)
""",
        expected=Expected(culprits=(("node1", 0),), reason=("ValueError: bad batch 3",)),
    ),
)
