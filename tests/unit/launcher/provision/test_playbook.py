"""A playbook as a child: output passed on, heartbeats, signals, nothing left running."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from launcher.inventory.passwords import Passwords
from launcher.provision import playbook
from launcher.provision.heartbeat import CurrentTask, current_task, heartbeat

NOTES = "10.0\ttask\tfirst\n10.1\tbegin\ta\n10.2\tend\ta\n20.0\ttask\tr : second\n20.0\tbegin\ta\n20.0\tbegin\tb\n"


def test_notes_say_which_nodes_have_not_finished() -> None:
    assert current_task(NOTES) == CurrentTask(name="r : second", started_at=20.0, nodes=("a", "b"))
    assert current_task(NOTES + "25.0\tend\ta\n26.0\ten").nodes == ("b",)
    assert heartbeat(current_task(NOTES), 60.4) == "… still: r : second (40 s) on a, b"
    assert heartbeat(current_task(""), 5.0) == "… still: starting"


def test_a_heartbeat_says_how_many_bytes_have_arrived() -> None:
    notes = NOTES + "25.0\tbytes\t1500000 3000000 a\n"
    assert heartbeat(current_task(notes), 60.4) == "… still: r : second (40 s) on a (1.5 MB of 3.0 MB), b"
    notes += "26.0\tbytes\t2000000 3000000 a\n27.0\tbytes\t10 3000000 b\n28.0\tend\ta\n"
    assert heartbeat(current_task(notes), 60.4) == (
        "… still: r : second (40 s) on b (10 bytes of 3.0 MB); together 2.0 MB of 6.0 MB"
    )
    assert heartbeat(current_task(notes + "29.0\ttask\tr : third\n"), 30.0) == "… still: r : third (1 s)"
    unknown = NOTES + "25.0\tbytes\t1500000 0 a\n"
    assert heartbeat(current_task(unknown), 60.4) == "… still: r : second (40 s) on a (1.5 MB so far), b"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_result_and_code_come_through(capfd: pytest.CaptureFixture[str]) -> None:
    code = """
import os, sys
print("a line")
open(os.environ["RINGMASTER_PROGRESS"], "w").write("1.0\\ttask\\tx\\n")
open(os.environ["RINGMASTER_RESULT"], "w").write("{}")
assert sys.stdin.read() == "" and os.path.exists("fabfile.py")
sys.exit(2)"""
    ended = playbook.run(python(code), os.environ, Passwords())
    assert (ended.code, ended.signal, ended.began, ended.result) == (2, None, True, "{}")
    assert capfd.readouterr().out == "a line\n"


def test_a_silence_is_explained(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(playbook, "_SILENCE_S", 0.2)
    note = (
        "import os, time; open(os.environ['RINGMASTER_PROGRESS'], 'w').write('%f\\ttask\\tlong one\\n' % time.time())"
    )
    playbook.run(python(f"{note}; time.sleep(2)"), os.environ, Passwords())
    assert re.search(r"… still: long one \(\d s\)\n", capfd.readouterr().out)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_child_and_what_it_has_left(tmp_path: Path, signum: int) -> None:
    """The launcher alone is told, as by `kill`; the child is deaf to SIGINT and has a helper in another session."""
    pid_file = tmp_path / "helper"
    child = f"""
import os, signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
helper = subprocess.Popen(["sleep", "60"], start_new_session=True)
open({str(pid_file)!r}, "w").write(str(helper.pid))
time.sleep(60)"""
    ours = f"""
import os, sys
from launcher.inventory.passwords import Passwords
from launcher.provision import playbook
playbook._ORDERLY_S = 0.3
ended = playbook.run([sys.executable, "-c", {child!r}], os.environ, Passwords())
print(ended.signal, ended.code)"""
    process = subprocess.Popen(python(ours), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signum)
    out, _ = process.communicate(timeout=20)
    assert out.split() == [str(int(signum)), str(-signal.SIGTERM)]
    stat = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"
