"""Endings in which ranks wait for one that doesn't come: who waited is innocent, and who didn't come may be silent."""

import signal

from tests.e2e.endings.ending import Ending, Expected

NODE1, NODE2 = ("node1", 0), ("node2", 1)

WAITED = (
    Ending(
        name="early-leaver",
        script="""
join()
add()
if RANK == 1:
    os._exit(0)
add()
""",
        expected=Expected(culprits=(NODE2,), provable=False, never=("still running",)),
        quick=True,
    ),
    Ending(
        name="early-leaver-of-three",
        nodes=3,
        script="""
join()
add()
if RANK == 0:
    os._exit(0)
add()
""",
        expected=Expected(culprits=(NODE1,), provable=False, never=("still running",)),
    ),
    Ending(
        name="never-joined",
        script="""
if RANK == 1:
    mark("ready")
    time.sleep(600)
join()
""",
        expected=Expected(culprits=(NODE2,), provable=False),
    ),
    Ending(
        name="deadlock",
        script="""
join()
if RANK == 1:
    time.sleep(600)
add()
""",
        expected=Expected(culprits=(NODE2,), provable=False),
        quick=True,
    ),
    Ending(
        name="deadlock-of-three",
        nodes=3,
        script="""
join()
if RANK == 0:
    time.sleep(600)
add()
""",
        expected=Expected(culprits=(NODE1,), provable=False),
    ),
    Ending(
        name="each-waits-for-the-other",
        # Two groups, entered in two orders: neither rank is more to blame, so none may be named.
        script="""
join()
groups = [dist.new_group(timeout=timedelta(seconds=5)) for _ in range(2)]
for group in groups if RANK == 0 else reversed(groups):
    dist.all_reduce(torch.ones(1), group=group)
""",
        expected=Expected(),
    ),
    Ending(
        name="victim-that-wraps-its-time-out",
        script="""
join()
if RANK == 1:
    time.sleep(600)
try:
    add()
except RuntimeError as error:
    raise SystemError("epoch 3 failed") from error
""",
        expected=Expected(culprits=(NODE2,), provable=False),
    ),
    Ending(
        name="victim-that-prints-its-time-out-and-exits-5",
        script="""
import traceback
join()
if RANK == 0:
    time.sleep(600)
try:
    add()
except RuntimeError:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(5)
""",
        expected=Expected(culprits=(NODE1,), provable=False),
    ),
    Ending(
        name="frozen",
        script="""
join()
mark("here")
while True:
    add()
    time.sleep(0.05)
""",
        act=lambda scene: scene.signal_program(1, signal.SIGSTOP),
        expected=Expected(culprits=(NODE2,), provable=False),
        quick=True,
    ),
    Ending(
        name="excuse-after-the-others-gave-up",
        script="""
join()
if RANK == 1:
    time.sleep(5.3)
    raise ValueError("took too long")
add()
""",
        expected=Expected(culprits=(NODE2,), provable=False, reason=("ValueError: took too long",)),
    ),
    Ending(
        name="teardown-before-its-traceback",
        # What the others see is a lost peer; its own words would come ten seconds later.
        script="""
join()
if RANK == 1:
    try:
        raise ValueError("bad batch 9")
    finally:
        dist.destroy_process_group()
        time.sleep(10)
add()
""",
        expected=Expected(culprits=(NODE2,), provable=False, reason=("ValueError: bad batch 9",)),
    ),
    Ending(
        name="neighbour-that-needs-ten-seconds",
        script="""
def tidy(*_):
    time.sleep(10)
    raise RuntimeError("gave up tidying")

signal.signal(signal.SIGTERM, tidy)
join(60)
if RANK == 0:
    raise ValueError("bad batch 2")
time.sleep(600)
""",
        expected=Expected(culprits=(NODE1,), reason=("ValueError: bad batch 2",)),
    ),
    Ending(
        name="one-hangs-while-another-raises",
        script="""
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.SIG_IGN)
mark("deaf")
if RANK == 1:
    marked("deaf")
    raise ValueError("bad batch 4")
while True:
    time.sleep(600)
""",
        expected=Expected(culprits=(NODE2,), reason=("ValueError: bad batch 4",)),
    ),
)
