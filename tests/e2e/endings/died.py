"""Endings by a signal, or by lack of memory."""

import signal

from tests.e2e.endings.ending import Ending, Expected

NODE1, NODE2 = ("node1", 0), ("node2", 1)
_WORKS = """
join(60)
mark("here")
while True:
    add()
    time.sleep(0.05)
"""

DIED = (
    Ending(
        name="segmentation-fault",
        script="""
join()
if RANK == 1:
    import ctypes
    ctypes.string_at(0)
add()
""",
        expected=Expected(culprits=(NODE2,), reason=("SIGSEGV",)),
    ),
    Ending(
        name="abort",
        script="""
join()
if RANK == 0:
    print("free(): invalid pointer", flush=True)
    os.abort()
add()
""",
        expected=Expected(culprits=(NODE1,), reason=("SIGABRT",)),
    ),
    Ending(
        name="memory-limit",
        script="""
import resource
join()
if RANK == 1:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (512 << 20), -1))
    kept = []
    while True:
        kept.append(bytearray(64 << 20))
add()
""",
        expected=Expected(culprits=(NODE2,), reason=("MemoryError",)),
    ),
    Ending(
        name="tensor-too-large",
        script="""
join()
if RANK == 0:
    torch.empty(1 << 50)
add()
""",
        expected=Expected(culprits=(NODE1,), reason=("can't allocate memory",)),
    ),
    Ending(
        name="killed-as-the-kernel-does",
        script=_WORKS,
        act=lambda scene: scene.signal_program(1, signal.SIGKILL),
        expected=Expected(culprits=(NODE2,), reason=("SIGKILL",)),
    ),
    Ending(
        name="told-to-end-by-a-stranger",
        script=_WORKS,
        act=lambda scene: scene.signal_program(0, signal.SIGTERM),
        expected=Expected(culprits=(NODE1,), reason=("SIGTERM",)),
        quick=True,
    ),
    Ending(
        name="its-parent-killed",
        script=_WORKS,
        act=lambda scene: scene.signal_parent(1, signal.SIGKILL),
        expected=Expected(culprits=(NODE2,), reason=("SIGKILL",)),
    ),
    Ending(
        name="its-parent-told-to-end",
        script=_WORKS,
        act=lambda scene: scene.signal_parent(1, signal.SIGTERM),
        expected=Expected(culprits=(NODE2,), reason=("SIGTERM",)),
    ),
    Ending(
        name="agent-killed",
        script=_WORKS,
        act=lambda scene: scene.signal_agent(1, signal.SIGKILL),
        expected=Expected(code=4, culprits=(("node2", None),), reason=("SIGKILL",)),
    ),
    Ending(
        name="data-worker-killed",
        script="""
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5 and RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return index

join(60)
for batch in DataLoader(Images(), batch_size=2, num_workers=1):
    add()
time.sleep(600)
""",
        expected=Expected(culprits=(NODE2,), reason=("DataLoader worker",)),
    ),
)
