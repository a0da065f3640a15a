"""What a rank's parent does before its program starts: it passes secrets on and hides them, and looks for GPUs."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.paths import ON_NODE
from launcher.follow.frames import Event, Lines, StreamReader
from launcher.on_node import rank
from launcher.on_node.rank import LineSplitter, Masker, gpu_problem, look_for_gpus, parse_secrets

RANK = [sys.executable, "-IS", str(ON_NODE / "rank.py")]
SEES_SECRETS = "import os, sys; print('TOKEN' in os.environ, 'RINGMASTER_SECRETS' in os.environ, sys.argv)"


def run(code: str, **extra: str) -> tuple[int, list[bytes], dict[str, Any], bytes]:
    """Run a rank; return its exit code, the program's lines, the closing event, all bytes."""
    environment = {
        **os.environ,
        "RANK": "0",
        "LOCAL_RANK": "0",
        "RINGMASTER_PROGRAM": shlex.join([sys.executable, "-u", "-c", code]),
        **extra,
    }
    done = subprocess.run(RANK, env=environment, stdout=subprocess.PIPE, timeout=30)
    items = list(StreamReader().feed(done.stdout))
    events = [item.fields for item in items if isinstance(item, Event)]
    return (
        done.returncode,
        [text for item in items if isinstance(item, Lines) for text in item.texts],
        events[-1],
        done.stdout,
    )


def secrets_file(folder: Path, content: bytes) -> str:
    (folder / "secrets").write_bytes(content)
    return str(folder / "secrets")


class TestSecretsFile:
    def test_values_are_taken_byte_for_byte(self) -> None:
        text = b"# a comment\n\n  # another\nA=1=2 3\nB_2=\"quoted\" 'x' $HOME #no comment\nC=\n_d= \xc3\xa4\xff "
        assert {key: os.fsencode(value) for key, value in parse_secrets(text).items()} == {
            "A": b"1=2 3",
            "B_2": b"\"quoted\" 'x' $HOME #no comment",
            "C": b"",
            "_d": b" \xc3\xa4\xff ",
        }

    @pytest.mark.parametrize(
        "line",
        [
            b"export HUNTER2=hunter2",
            b"hunter2",
            b"=hunter2",
            b"2HUNTER=hunter2",
            b" HUNTER=hunter2",
            b"HUNTER =hunter2",
            b"H\xc3\x84NTER=hunter2",
            b"HUNTER=hunter2\r",
            b"HUNTER=hun\0ter2",
            b"OLD=hunter2",
            *(
                b"%s=hunter2" % key
                for key in (b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"LOCAL_WORLD_SIZE", b"MASTER_ADDR", b"RUN_DIR")
            ),
            *(b"%s=hunter2" % key for key in (b"RINGMASTER_JOB", b"DATA_DIR", b"CHECKPOINT_DIR", b"PATH", b"HOME")),
            *(b"%s=hunter2" % key for key in (b"LD_PRELOAD", b"PYTHONPATH", b"CUDA_VISIBLE_DEVICES", b"NCCL_DEBUG")),
        ],
    )
    def test_a_bad_line_is_named_and_not_shown(self, line: bytes) -> None:
        with pytest.raises(ValueError, match=r"^line 3\b") as error:
            parse_secrets(b"OLD=1\n\n" + line + b"\n")
        assert "hunter" not in str(error.value).lower() and "hun" not in str(error.value)

    @pytest.mark.parametrize("key", ["NVIDIA_API_KEY", "HF_TOKEN", "PATHS", "RANKING", "LOCAL_TOKEN", "XLD_PRELOAD"])
    def test_keys_that_only_resemble_ours_are_fine(self, key: str) -> None:
        assert parse_secrets(f"{key}=x".encode()) == {key: "x"}

    def test_the_program_alone_gets_them(self, tmp_path: Path) -> None:
        path = secrets_file(tmp_path, b"TOKEN=hunter2 hunter2\n")
        code, lines, _, _ = run(SEES_SECRETS, RINGMASTER_SECRETS=path)
        assert (code, lines) == (0, [b"True False ['-c']"])
        of_the_parent = "import os; print(os.environ['TOKEN'] in open(f'/proc/{os.getppid()}/environ').read())"
        assert run(of_the_parent, RINGMASTER_SECRETS=path)[1] == [b"False"]
        error_file = "import os; print(os.environ.get('TORCHELASTIC_ERROR_FILE'))"
        variables = {"TORCHELASTIC_ERROR_FILE": "/errors"}
        assert run(error_file, RINGMASTER_SECRETS=path, **variables)[1] == [b"None"], (
            "torchrun prints the content of that file"
        )
        assert run(error_file, **variables)[1] == [b"/errors"]
        length = "import os; print(len(os.environb[b'TOKEN']))"
        assert run(length, RINGMASTER_SECRETS=path)[1] == [b"15"]

    @pytest.mark.parametrize("content", [None, b"TOKEN=1\nexport OTHER=hunter2\n"])
    def test_a_file_that_is_missing_or_malformed_starts_nothing(self, tmp_path: Path, content: bytes | None) -> None:
        path = str(tmp_path / "none") if content is None else secrets_file(tmp_path, content)
        code, lines, end, output = run("print('started')", RINGMASTER_SECRETS=path)
        assert (code, end["event"], end["exit_code"], end["signal"]) == (2, "exited", 2, None)
        assert len(lines) == 1 and path.encode() in lines[0] and b"hunter2" not in output
        assert (b"line 2" in lines[0]) is (content is not None)


class TestMasking:
    def test_secrets_in_what_is_printed_become_stars(self, tmp_path: Path) -> None:
        path = secrets_file(tmp_path, b"A=hunter2\nB=hunter2-longer\nC=xyz\nD=\xff(.*)\xc3\xa4\nE=\n")
        code = "\n".join(
            (
                "import os, sys",
                "secret = os.environb",
                "for text in (b'a' + secret[b'A'] + b'b' + secret[b'A'], secret[b'B'], secret[b'C'], secret[b'D']):",
                "    sys.stdout.buffer.write(text + b'\\n')",
                "sys.stdout.buffer.write(b'x' * 3997 + secret[b'A'] + b'\\n')",
                "sys.stdout.flush()",
                "sys.stderr.write('bar\\rbar ' + os.environ['A'] + '\\r\\n')",
                "raise SystemExit(os.environ['B'] + ' at the end')",
            )
        )
        _, lines, _, output = run(code, RINGMASTER_SECRETS=path)
        # Three characters are too few to be masked: they would occur in every other word.
        assert lines[:4] == [b"a***b***", b"***", b"xyz", b"***"]
        assert lines[4:] == [b"x" * 3997 + b"***", b"bar", b"bar ***", b"*** at the end"]
        assert b"hunter2" not in output

    @pytest.mark.parametrize("secret", ["    ", " a  ", "\t\t\t\tabc"])
    def test_blanks_are_not_masked(self, secret: str) -> None:
        assert Masker([secret])(b"def f():\n        " + secret.encode()) == b"def f():\n        " + secret.encode()
        assert Masker([" abcd"])(b"x abcd") == b"x***"

    def test_a_program_that_cannot_start_shows_none(self, tmp_path: Path) -> None:
        path = secrets_file(tmp_path, b"A=hunter2\n")
        code, lines, _, _ = run("", RINGMASTER_SECRETS=path, RINGMASTER_PROGRAM="/nowhere/hunter2")
        assert (code, lines) == (127, [b"cannot start /nowhere/***: No such file or directory"])

    @given(st.lists(st.sampled_from([b"a", b"secret", b"sec", b"ret", b"\n", b"\r", b"*"]), max_size=40), st.data())
    def test_no_line_shows_one_wherever_it_is_cut(self, words: list[bytes], data: st.DataObject) -> None:
        text, mask = b"".join(words), Masker(["secret", "cret"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rank, "_LONGEST_LINE_BYTES", 16)
            splitter, lines, start = LineSplitter(mask), [], 0
            while start < len(text):
                end = data.draw(st.integers(start + 1, len(text)))
                lines += [mask(line) for line in splitter.feed(text[start:end], now=start)]
                start = end
            lines += [mask(line) for line in splitter.finish()]
        assert not any(b"secret" in line for line in lines)
        if b"\r" not in text:  # \r thins lines out
            assert b"".join(lines) == b"".join(map(mask, text.split(b"\n")))


class FakeCuda:
    """libcuda, as ctypes presents it."""

    def __init__(self, count: int, version: int, init: int = 0) -> None:
        self.count, self.version, self.init = count, version, init

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = self.version
        return 0

    def cuInit(self, flags: Any) -> int:  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.count
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802
        name._obj.value = b"CUDA_ERROR_NO_DEVICE" if code == 100 else None
        return 0


def with_gpus(planned: int, cuda: str = "13.0", **extra: str) -> dict[str, str]:
    base = {"RINGMASTER_CHECK_GPUS": "1", "RINGMASTER_GPUS": str(planned), "RINGMASTER_CUDA": cuda, "LOCAL_RANK": "0"}
    return base | extra


class TestGpus:
    @pytest.mark.parametrize(
        ("cuda", "expected"),
        [
            (FakeCuda(count=2, version=13020), (2, 13020)),
            (FakeCuda(count=0, version=13000, init=100), (0, 13000, "cuInit: CUDA_ERROR_NO_DEVICE")),
            (FakeCuda(count=0, version=13000, init=12345), (0, 13000, "cuInit: 12345")),
            (OSError("libcuda.so.1: cannot open shared object file: No such file or directory"),
             (0, 0, "there is no libcuda.so.1")),
            (OSError("libcuda.so.1: file too short"), (0, 0, "libcuda.so.1: file too short")),
        ],
    )  # fmt: skip
    def test_libcuda_is_asked(self, monkeypatch: pytest.MonkeyPatch, cuda: Any, expected: tuple[Any, ...]) -> None:
        def load(name: str) -> Any:
            if isinstance(cuda, OSError):
                raise cuda
            return cuda

        monkeypatch.setattr(ctypes, "CDLL", load)
        assert look_for_gpus()[: len(expected)] == expected

    @pytest.mark.parametrize(
        ("environment", "count", "driver", "reason"),
        [
            (with_gpus(2), 2, 13000, None),
            (with_gpus(2), 4, 13020, None),
            (with_gpus(2, cuda=""), 2, 11000, None),
            (with_gpus(2), 0, 0, "2 GPU(s) are planned for this node, the container sees none (why): "),
            (with_gpus(2), 1, 13000, "2 GPU(s) are planned for this node, the container sees 1: "),
            (with_gpus(2, cuda="13.2"), 2, 12040, "the image is made for CUDA 13.2, the driver of this node knows only "
             "CUDA 12.4: "),
            (with_gpus(2, cuda="12.8"), 2, 12040, None),
        ],
    )  # fmt: skip
    def test_what_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], count: int, driver: int, reason: str | None
    ) -> None:
        monkeypatch.setattr(rank, "look_for_gpus", lambda: (count, driver, "why"))
        problem = gpu_problem(environment)
        assert problem is None if reason is None else str(problem).startswith(reason)
        assert reason is None or "GPUS=0" in str(problem)

    @pytest.mark.parametrize(
        "environment",
        [
            with_gpus(0),
            with_gpus(2, RINGMASTER_CHECK_GPUS="0"),
            {"LOCAL_RANK": "0", "RINGMASTER_GPUS": "2"},
            {"LOCAL_RANK": "0"},
        ],
    )
    def test_nobody_looks_unasked(self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
        monkeypatch.setattr(rank, "_in_a_child", lambda look: pytest.fail("looked"))
        assert gpu_problem(environment) is None

    def test_a_look_that_crashes_is_a_refusal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rank, "look_for_gpus", lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert "none (libcuda.so.1 failed)" in str(gpu_problem(with_gpus(1)))

    def test_a_refused_program_is_not_started(self) -> None:
        code, lines, end, _ = run("print('started')", **with_gpus(99))
        assert (code, end["event"], end["exit_code"], end["refused"]) == (3, "exited", 3, True)
        assert len(lines) == 1 and lines[0].startswith(b"99 GPU(s) are planned for this node, the container sees ")

    def test_every_rank_is_refused_and_one_says_why(self) -> None:
        code, lines, end, _ = run("print('started')", **with_gpus(99, LOCAL_RANK="1"))
        assert (code, end["event"], end["exit_code"], end["refused"]) == (3, "exited", 3, True)
        assert lines == [b"not started: see the node's first rank"]

    def test_a_real_library_is_called_as_it_wants_to_be(self, tmp_path: Path) -> None:
        compiler = shutil.which("cc")
        if not compiler:
            pytest.skip("no C compiler here to make a stand-in for libcuda with")
        (tmp_path / "cuda.c").write_text(
            "int cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n"
            "int cuInit(unsigned flags) { return flags; }\n"
            "int cuDeviceGetCount(int *n) { *n = 3; return 0; }\n"
        )
        options = ["-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
        subprocess.run([compiler, *options], check=True)
        there = {"LD_LIBRARY_PATH": str(tmp_path)}
        code, lines, _, _ = run("print('started')", **with_gpus(3, cuda="12.8"), **there)
        assert (code, lines) == (0, [b"started"])
        code, lines, end, _ = run("print('started')", **with_gpus(3), **there)
        assert (code, end.get("refused")) == (3, True) and b"knows only CUDA 12.4" in lines[0]
        code, lines, _, _ = run("print('started')", **with_gpus(4, cuda="12.8"), **there)
        assert code == 3 and b"the container sees 3" in lines[0]
