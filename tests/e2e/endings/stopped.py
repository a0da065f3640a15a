"""Endings that somebody asked for, and good ones that look bad."""

import signal

from tests.e2e.endings.ending import Act, Ending, Expected
from tests.e2e.endings.scene import Scene

_WAITS = """
mark("here")
while True:
    time.sleep(600)
"""


def _stop(signum: int) -> Act:
    """Send a signal to the launcher when both ranks are at work."""

    def act(scene: Scene) -> None:
        for rank in (0, 1):
            scene.await_mark("here", rank)
        scene.signal_launcher(signum)

    return act


def _stop_a_failed_job(scene: Scene) -> None:
    """Press Ctrl-C when the launcher is already ending the others because one has failed."""
    scene.await_mark("told", 0)
    scene.signal_launcher(signal.SIGINT)


STOPPED = (
    Ending(
        name="control-c",
        script=_WAITS,
        act=_stop(signal.SIGINT),
        expected=Expected(state="stopped", code=130),
    ),
    Ending(
        name="control-c-and-a-tidy-end",
        script="""
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
"""
        + _WAITS,
        act=_stop(signal.SIGINT),
        expected=Expected(state="stopped", code=130),
    ),
    Ending(
        name="launcher-told-to-end",
        script=_WAITS,
        act=_stop(signal.SIGTERM),
        expected=Expected(state="stopped", code=143),
    ),
    Ending(
        name="node-told-to-go",
        script="""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
"""
        + _WAITS,
        act=lambda scene: scene.signal_agent(1, signal.SIGTERM),
        expected=Expected(state="stopped", code=143, said=r"node2\b.*\b(told|SIGTERM)"),
        quick=True,
    ),
    Ending(
        name="node-told-to-go-whose-program-knows-no-signal",
        script="""
join(60)
mark("here")
while True:
    add()
    time.sleep(0.05)
""",
        act=lambda scene: scene.signal_agent(0, signal.SIGTERM),
        expected=Expected(state="stopped", code=143, said=r"node1\b.*\b(told|SIGTERM)"),
    ),
    Ending(
        name="failed-and-then-control-c",
        script="""
def told(*_):
    mark("told")
    time.sleep(600)

signal.signal(signal.SIGTERM, told)
mark("deaf")
if RANK == 1:
    marked("deaf")
    raise ValueError("bad batch 8")
while True:
    time.sleep(600)
""",
        act=_stop_a_failed_job,
        expected=Expected(culprits=(("node2", 1),), reason=("ValueError: bad batch 8",)),
        quick=True,
    ),
    Ending(
        name="handled-and-ends-well",
        script="""
import atexit, traceback

def tidy():
    raise OSError("nothing to tidy up")

if RANK == 0:
    try:
        raise ValueError("no such label")
    except ValueError:
        traceback.print_exc()
else:
    atexit.register(tidy)
join()
add()
dist.destroy_process_group()
""",
        expected=Expected(state="succeeded", code=0),
        quick=True,
    ),
)
