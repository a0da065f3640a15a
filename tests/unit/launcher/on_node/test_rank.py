"""A rank's parent: its program runs as it would alone, its lines are framed, its end is reported."""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.base.paths import ON_NODE
from launcher.follow.frames import Event, Lines, StreamReader
from launcher.on_node import rank
from launcher.on_node.rank import decoded, encoded

RANK = [sys.executable, "-IS", str(ON_NODE / "rank.py")]


def environment(code: str, *arguments: str, **extra: str) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": "3",
        "LOCAL_RANK": "1",
        "RINGMASTER_PROGRAM": shlex.join([sys.executable, "-u", "-c", code]),
        "RINGMASTER_ARGUMENTS": shlex.join(arguments),
        **extra,
    }


def run(code: str, *arguments: str, **extra: str) -> tuple[int, list[bytes], dict[str, object]]:
    """Run a rank; return its exit code (negative: signal), the program's lines, the closing event."""
    done = subprocess.run(RANK, env=environment(code, *arguments, **extra), stdout=subprocess.PIPE, timeout=30)
    items = list(StreamReader().feed(done.stdout))
    assert all(item.rank == 3 for item in items)
    events = [item.fields for item in items if isinstance(item, Event)]
    assert [event["event"] for event in events] in (["started", "exited"], ["exited"])
    return done.returncode, [text for item in items if isinstance(item, Lines) for text in item.texts], events[-1]


def test_arguments_arrive_byte_for_byte() -> None:
    arguments = ("--note", "it's $HOME", "$$", "${local_rank}", "a\nb", "`x`;$(y)", "", "--", "schön 训练")
    _, lines, _ = run("import sys; print(ascii(sys.argv[1:]))", *arguments)
    assert lines == [ascii(list(arguments)).encode()]


def test_a_program_with_processes_of_its_own_has_a_port_for_them() -> None:
    code = "import os; print([os.environ.get(name) for name in ('MASTER_PORT', 'TORCHELASTIC_USE_AGENT_STORE')])"
    torchrun = {"MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert run(code, **torchrun)[1] == [b"['29500', 'True']"]
    assert run(code, **torchrun, RINGMASTER_OWN_PORT="29501")[1] == [b"['29501', 'False']"]


def test_words_that_are_no_utf_8_arrive_too() -> None:
    """An engine doesn't keep such bytes in a container's environment."""
    words = encoded(shlex.join([os.fsdecode(b"\xff'\xc3"), "a b"]))
    assert words.isascii()
    _, lines, _ = run("import os, sys; print([os.fsencode(each) for each in sys.argv[1:]])", RINGMASTER_ARGUMENTS=words)
    assert lines == [ascii([b"\xff'\xc3", b"a b"]).encode()]
    program = encoded(shlex.join([sys.executable, "-c", "print('here')", os.fsdecode(b"\xff")]))
    assert run("", RINGMASTER_PROGRAM=program)[1] == [b"here"]


@given(st.binary(max_size=20))
@example(b"hex:6162")
@example(b"")
def test_words_come_back_as_they_were(content: bytes) -> None:
    words = os.fsdecode(content)
    assert decoded(encoded(words)) == words
    encoded(words).encode()  # otherwise an engine would corrupt it


def test_ordinary_words_stay_readable() -> None:
    assert encoded("python 'a b' schön 训练") == "python 'a b' schön 训练"


def test_launch_style_gets_its_local_rank_before_the_arguments() -> None:
    code = "import sys; print(sys.argv[1:])"
    _, lines, _ = run(code, "--lr", "1", RINGMASTER_LOCAL_RANK_FLAG="--local_rank")
    assert lines == [b"['--local_rank=1', '--lr', '1']"]


@pytest.mark.skipif(sys.platform != "linux", reason="the others' kernels choose by themselves")
def test_where_memory_runs_out_the_program_goes_before_whoever_watches_it() -> None:
    code = (
        "import os; print(*(open(f'/proc/{each()}/oom_score_adj').read().strip() for each in (os.getpid, os.getppid)))"
    )
    _, lines, _ = run(code)
    program, parent = map(int, lines[0].split())
    assert program > parent


def test_an_exception_is_reported_with_its_time() -> None:
    before = time.time()
    code, lines, end = run("raise ValueError('boom')")
    assert code == 1
    assert lines[-1] == b"ValueError: boom"
    assert (end["exit_code"], end["signal"]) == (1, None)
    assert before <= float(str(end["error_at"])) <= time.time()


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_signal_ends_the_parent_alike(name: str) -> None:
    signum = signal.Signals[name]
    code, _, end = run(f"import os; os.kill(os.getpid(), {int(signum)})")
    assert code == -signum
    assert (end["exit_code"], end["signal"]) == (128 + signum, name)


def test_exit_code_and_last_words_without_newline() -> None:
    code, lines, end = run("import sys; sys.stdout.write('no newline'); sys.exit(7)")
    assert (code, lines, end["exit_code"], end["error_at"]) == (7, [b"no newline"], 7, None)


def test_a_program_that_is_not_there() -> None:
    code, lines, end = run("", RINGMASTER_PROGRAM="/nowhere/python")
    assert (code, end["exit_code"]) == (127, 127)
    assert b"cannot start /nowhere/python" in lines[0]


def test_a_grandchild_that_holds_the_pipe_does_not_hold_a_failure() -> None:
    started = time.monotonic()
    code, lines, _ = run("import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid); sys.exit(1)")
    assert code == 1
    assert time.monotonic() - started < 30
    os.kill(int(lines[0]), signal.SIGKILL)


def test_what_a_grandchild_prints_after_the_programs_end_is_heard() -> None:
    child = "import time\nfor number in range(9): print(number, flush=True); time.sleep(0.2)"
    code, lines, _ = run(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])")
    assert (code, lines) == (0, [b"%d" % number for number in range(9)])


class TestLingering:
    """How long the output of a program that has ended is read, if something still holds it."""

    def test_what_prints_is_heard_for_a_minute(self) -> None:
        lingering = rank.Lingering(patient=True, now=100.0)
        assert not any(lingering.over(now, heard=True) for now in range(101, 160, 8))
        assert lingering.over(160.5, heard=True)

    def test_what_is_silent_for_ten_seconds(self) -> None:
        lingering = rank.Lingering(patient=True, now=100.0)
        assert not lingering.over(105.0, heard=True) and not lingering.over(114.0)
        assert lingering.over(115.5)

    def test_after_a_failure_or_where_the_end_is_asked_for_nothing_is_waited_for(self) -> None:
        failed, asked = (rank.Lingering(patient=patient, now=100.0) for patient in (False, True))
        assert failed.over(100.1) and failed.over(100.6, heard=True) and not failed.over(100.4, heard=True)
        assert asked.over(103.0, hurried=True)
        assert failed.remark(104.0) is None

    def test_the_wait_is_said_once_and_not_at_once(self) -> None:
        lingering = rank.Lingering(patient=True, now=100.0)
        assert lingering.remark(102.0) is None
        assert "60 s at most, 10 s" in (lingering.remark(103.5) or "")
        assert lingering.remark(104.0) is None


def test_last_words_are_heard_where_the_agent_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "print('\\n'.join(map(str, range(9000))), end='')"
    lines: list[bytes] = []
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as child:
        child.wait()
        moments = itertools.count()
        clock = SimpleNamespace(monotonic=lambda: float(next(moments)), time=time.time, sleep=lambda _: None)
        monkeypatch.setattr(rank, "time", clock)
        rank._relay(child, SimpleNamespace(lines=lines.extend), rank.Masker())  # type: ignore[arg-type]  # a screen
    assert lines == [b"%d" % number for number in range(9000)]


def test_a_signal_is_handed_on_and_the_program_ends_with_its_parent() -> None:
    code = "\n".join(
        (
            "import os, signal, time",
            "signal.signal(signal.SIGTERM, lambda *_: print('graceful', flush=True))",
            "print(os.getpid(), flush=True)",
            "while True: time.sleep(0.1)",
        )
    )
    with subprocess.Popen(RANK, env=environment(code), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # started
        pid = int(parent.stdout.readline().rpartition(b"|")[2])
        parent.terminate()
        said = [parent.stdout.readline(), parent.stdout.readline()]  # in either order
        assert any(b"graceful" in line for line in said)
        told = next(item.fields for line in said for item in StreamReader().feed(line) if isinstance(item, Event))
        assert (told["event"], told["signal"]) == ("told", "SIGTERM") and told["state"]
        parent.kill()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("by_its_parent", [True, False])
def test_the_end_says_whether_the_program_was_told_to(by_its_parent: bool) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(RANK, env=environment(code), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # started
        pid = int(parent.stdout.readline().rpartition(b"|")[2])
        os.kill(parent.pid if by_its_parent else pid, signal.SIGTERM)
        items = list(StreamReader().feed(parent.stdout.read()))
    end = items[-1]
    assert isinstance(end, Event)
    assert (end.fields["event"], end.fields["signal"]) == ("exited", "SIGTERM")
    told = end.fields["told"]
    assert (told is not None) is by_its_parent
    assert told is None or (told["signal"] == "SIGTERM" and told["at"] <= end.fields["at"])


CATCHES = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"caught\\n"))
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"here\\n"))
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def heard(parent: "subprocess.Popen[bytes]", until: bytes) -> list[Lines | Event]:
    """Read what a rank prints up to a line."""
    assert parent.stdout is not None
    lines = []
    while not lines or until not in lines[-1]:
        lines.append(parent.stdout.readline())
        assert lines[-1], lines
    return list(StreamReader().feed(b"".join(lines)))


def test_sigterm_reaches_the_program_once_however_many_tell_it() -> None:
    with subprocess.Popen(RANK, env=environment(CATCHES), stdout=subprocess.PIPE) as parent:
        heard(parent, b"ready")
        parent.terminate()
        items = heard(parent, b"caught")
        for _ in range(3):  # torchrun closes its ranks twice
            parent.terminate()
            parent.send_signal(signal.SIGUSR1)
            items += heard(parent, b"here")
        parent.kill()
    texts = [text for item in items if isinstance(item, Lines) for text in item.texts]
    assert texts == [b"caught", b"here", b"here", b"here"]


@pytest.mark.parametrize("program", [CATCHES, CATCHES.replace("signal.SIGTERM, lambda", "signal.SIGUSR2, lambda")])
def test_it_is_told_whether_the_program_catches_the_signal(program: str) -> None:
    with subprocess.Popen(RANK, env=environment(program), stdout=subprocess.PIPE) as parent:
        heard(parent, b"ready")
        parent.terminate()
        told = next(item for item in heard(parent, b"told") if isinstance(item, Event))
        assert told.fields["catches"] is (program == CATCHES)
        parent.kill()


_FAMILY = """
import ctypes, os, signal, sys, time
names = ["child", "pt_data_worker", "leaves"]
for name in names:
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
        if name == "leaves":
            os.setsid()
        signal.signal(signal.SIGINT, lambda *_: (os.write(1, f"{name} interrupted\\n".encode()), os._exit(0)))
        os.write(1, b"ready\\n")
        time.sleep(60)
        os._exit(0)
signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.5), os.write(1, b"program interrupted\\n"), os._exit(0)))
os.write(1, b"ready\\n")
time.sleep(60)
"""


@pytest.mark.parametrize(("own", "heard"), [({"RINGMASTER_OWN_PORT": "1"}, ["child", "program"]), ({}, ["program"])])
def test_an_interrupt_reaches_the_processes_that_a_program_starts(own: dict[str, str], heard: list[str]) -> None:
    """But not torch's data workers, nor whatever has left the group, which a terminal's Ctrl-C would not reach."""
    started = {"env": environment(_FAMILY, **own), "stdout": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(RANK, **started) as parent:  # type: ignore[call-overload]
        lines = (item for line in parent.stdout for item in StreamReader().feed(line) if isinstance(item, Lines))
        ready = 0
        while ready < 4:
            ready += next(lines).texts.count(b"ready")
        parent.send_signal(signal.SIGINT)
        said = [text for item in lines for text in item.texts if text.endswith(b" interrupted")]
    assert sorted(text.decode().split()[0] for text in said) == heard


def test_a_frozen_program_is_known_as_such() -> None:
    code = "import os, signal; print('here', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen(RANK, env=environment(code), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # started
        parent.stdout.readline()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        deadline = time.monotonic() + 10
        while rank.state_of(int(children[0])) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        parent.terminate()
        told = next(item for item in StreamReader().feed(parent.stdout.readline()) if isinstance(item, Event))
        assert told.fields["state"] == "T"
        parent.kill()


@given(st.lists(st.binary(max_size=10_000) | st.binary(max_size=20), min_size=1), st.integers(1, 500))
@example([b"x" * 90] * 200, 500)
def test_frames_survive_any_bytes_and_any_cuts(texts: list[bytes], step: int) -> None:
    written: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank.os, "write", lambda _descriptor, data: written.append(data))
        lines = [text.replace(b"\n", b" ") for text in texts]
        rank.Frames("12").lines(lines)
    assert all(len(part) <= 4096 and part.endswith(b"\n") for part in written), "else they mix with other ranks' frames"
    assert all(part.startswith(rank.FRAME) for part in written)
    assert len(written) <= 2 + sum(map(len, lines)) // 1000 + len(lines) // 100, "many lines travel in one write"
    data, reader = b"".join(written), StreamReader()
    items = [item for start in range(0, len(data), step) for item in reader.feed(data[start : start + step])]
    assert all(isinstance(item, Lines) and item.rank == 12 for item in items)
    assert [text for item in items if isinstance(item, Lines) for text in item.texts] == lines


def test_what_is_no_frame_is_the_agents() -> None:
    data = b"plain\n\x1e|odd\n\x1e12\n\x1e12?x\n\xff\nlast"
    reader = StreamReader()
    items = [*reader.feed(data), *reader.feed(b"")]
    assert [text for item in items if isinstance(item, Lines) for text in item.texts] == data.split(b"\n")
    assert all(item.rank is None for item in items)


@pytest.mark.parametrize(
    ("data", "before", "began"),
    [
        (b"all is well", 97.0, 97.0),
        (b"x\nTraceback (most recent call last):\n", 97.0, 100.0),
        (b"terminate called without an active exception\n", 97.0, 97.0),
        (b"Fatal Python error: Aborted\n", 90.0, 100.0),
        (b"Fatal Python error: Segmentation fault\n", None, 100.0),
    ],
)
def test_an_abort_soon_after_a_traceback_is_its_consequence(data: bytes, before: float | None, began: float) -> None:
    assert rank._trouble(data, 100.0, before) == began
