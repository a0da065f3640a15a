"""What .venv's Python does at its end for programs that use Gloo (`requirements/ringmaster_exit.py`), no more."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME_OF_A_THREAD = 15  # PR_SET_NAME, linux/prctl.h
BUSY = 'hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)'
"""Some hundredths of a second without Python's lock, as in one of Gloo's threads."""
WITH_A_THREAD = f"""
import atexit, ctypes, hashlib, multiprocessing, os, signal, sys, threading, time
sys.modules["torch.distributed"] = sys
named, woken = threading.Event(), threading.Event()
def rest():
    ctypes.CDLL(None).prctl({NAME_OF_A_THREAD}, b"pt_gloo_runloop")
    named.set()
    woken.wait()
    {BUSY}
    os.write(1, b"let go\\n")
threading.Thread(target=rest, daemon=True).start()
named.wait()
atexit.register(print, "first registered")
atexit.register(print, "last registered")
"""
ENDINGS = {
    "at the last line": "",
    "with a code": "sys.exit(3)",
    "with words": "sys.exit('words')",
    "by an exception": "raise ValueError('boom')",
    "by Ctrl-C": "raise KeyboardInterrupt",
    "by a signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "without exit functions": "os._exit(5)",
    "with an exit function that fails": "atexit.register(lambda: 1 / 0)",
    "with an exit function that exits": "atexit.register(sys.exit, 4)",
    "after a thread": "threading.Timer(0.1, lambda: print('thread')).start()",
    "after a thread that exits": "threading.Timer(0.1, sys.exit, [4]).start()",
    "after a fork": "pid = os.fork(); pid and print(os.waitpid(pid, 0)[1]); sys.exit(0 if pid else 6)",
    "after a data worker": "p = multiprocessing.get_context('fork').Process(target=print, args=['worker']); p.start()",
    "with its time replaced": "time.sleep = time.monotonic = None",
    "without output": "os.close(1)",
}
LOOKS = """
import sys, warnings
print(sys.argv, sys.path, sys.flags, sys.warnoptions, warnings.filters, __name__, __file__, sorted(globals()))
print(sorted(sys.modules.keys() - {"atexit", "ringmaster_exit"}), sys.excepthook, sys.gettrace(), sys.stdout)
"""
EXCHANGE = f"""
import atexit, hashlib, os, sys, threading
import torch
import torch.distributed as dist

ending = threading.Event()

def end():
    os.write(1, b"exit function\\n")
    ending.set()

atexit.register(end)
path, rank = sys.argv[1], int(sys.argv[2])
store = dist.FileStore(path, 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)

def let_go(future):
    while not ending.is_set():
        {BUSY}
    {BUSY}
    os.write(1, b"let go\\n")

if rank == 1:
    store.wait(["registered"])
work = dist.all_reduce(torch.ones(1), async_op=True)
future = work.get_future()
if rank == 0:
    future.then(let_go)  # called by Gloo's thread, because the exchange hasn't begun
    store.set("registered", "")
future.wait()
sys.exit(3 if rank == 0 else 0)
"""


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a Python with the exit function, and of one without."""
    folders = tmp_path_factory.mktemp("python") / "a", tmp_path_factory.mktemp("python") / "b"
    for folder in folders:
        venv.create(folder, symlinks=True)
    for name in ("ringmaster_exit.py", "ringmaster_exit.pth"):
        shutil.copy(ROOT / "requirements" / name, next(folders[0].glob("lib/python3*/site-packages")))
    return folders


def run(folder: Path, script: Path, *options: str) -> tuple[int, str, str]:
    """Return how the script ended, and what it printed, without what differs between two runs."""
    done = subprocess.run([folder / "bin" / "python", *options, script], capture_output=True, text=True, timeout=60)
    output, errors = (re.sub(rf"{re.escape(str(folder))}|\b0x\w+", "", text) for text in (done.stdout, done.stderr))
    return done.returncode, output, errors


def test_it_comes_after_the_programs_own_exit_functions(pythons: tuple[Path, Path], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITH_A_THREAD.replace("named.wait()", "named.wait(); atexit.register(woken.set)"))
    assert run(pythons[0], script, "-u") == (0, "last registered\nfirst registered\nlet go\n", "")


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_every_end_is_what_it_was(pythons: tuple[Path, Path], tmp_path: Path, ending: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{WITH_A_THREAD}{ending}\n")
    here, there = (run(python, script) for python in pythons)
    assert here == there


@pytest.mark.parametrize("options", ["", "-I", "-E", "-s", "-S", "-B", "-O", "-W error", "-X dev", "-X utf8", "-u"])
def test_the_program_sees_nothing_of_it(pythons: tuple[Path, Path], tmp_path: Path, options: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOKS)
    here, there = (run(python, script, *options.split()) for python in pythons)
    assert here == there
    assert here[0] == 0, here


def test_a_rank_ends_with_its_code_though_gloo_is_still_busy(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EXCHANGE)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, tmp_path / "store", str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [3, 0], printed
    assert printed[0].endswith("exit function\nlet go\n") and printed[1].endswith("exit function\n")
