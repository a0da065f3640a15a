"""The other verbs about a job that runs on this machine: shown, stopped, its lines shown again."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from launcher.base.paths import ROOT
from tests.e2e.jobs import LOCAL, Trainer, processes_with

WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
print("waiting", flush=True)
time.sleep(600)
"""


def make(verb: str, name: str) -> tuple[str, int]:
    words = ["make", "-s", "-C", str(ROOT), verb, f"NAME={name}", f"INVENTORY={LOCAL}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.stdout, int(re.findall(r"^ringmaster: exit (\d+)", done.stdout, re.MULTILINE)[-1])


def test_a_job_is_shown_stopped_and_its_lines_shown_again(train: Trainer, script: Callable[..., Path]) -> None:
    name, process = train.start(SCRIPT=script(WAITS), NODES=1)
    with process:
        assert process.stdout
        while "waiting" not in (line := process.stdout.readline()):
            assert line, "it ended without a word"
        said, code = make("status", name)
        assert (code, re.findall(rf"^{name} +running ", said, re.MULTILINE) != []) == (0, True), said
        said, code = make("stop", name)
        assert code == 0 and f"job {name} has ended: stopped" in said
        assert "ringmaster: exit 143" in process.stdout.read()
    assert processes_with(f"RINGMASTER_JOB={name}") == []
    said, code = make("logs", name)
    assert (code, "node1:0 | saved" in said) == (143, True), said
    said, code = make("stop", name)
    assert (code, f"job {name} has ended: stopped" in said) == (0, True), said
