"""What a program has written into its working folder, as its node tells it. The node is this machine."""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.on_node import tree_store, work_folder
from launcher.on_node.tree_store import Entry, block, manifest_of
from tests.support.cluster.worked import below, write

PROGRAM = Path(work_folder.__file__).read_text()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder with `train.py` and a link, placed as the launcher does it."""
    job = tmp_path / "jobs/job"
    job.mkdir(parents=True)
    code = b"print(1)\n"
    entries = [
        Entry("train.py", 0o644, len(code), hashlib.sha256(code).hexdigest()),
        Entry("run.py", 0o644, link="train.py"),
    ]
    words = [
        "-IS",
        "-c",
        Path(tree_store.__file__).read_text(),
        "make",
        tmp_path / "store",
        job / "code",
        "",
    ]
    sent = block(manifest_of(entries)) + f"{entries[0].sha256} {len(code)}\n".encode() + code
    subprocess.run([sys.executable, *words], input=sent, check=True, capture_output=True)
    return job


def run(verb: str, job: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-IS", "-c", PROGRAM, verb, str(job), *words]
    how: dict[str, Any] = {"preexec_fn": _read_no_more_than_others} if os.geteuid() == 0 else {}
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env={"LC_ALL": "C"}, **how)


def _read_no_more_than_others() -> None:
    """Take from a program that root starts what lets root read everything."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def answer(verb: str, job: Path, *words: str) -> dict[str, Any]:
    done = run(verb, job, *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def listed(job: Path) -> list[str]:
    return sorted(row[0] for row in answer("list", job, "")["rows"])


def test_what_was_placed_and_nobody_touched_is_not_listed(job: Path) -> None:
    assert listed(job) == [] and answer("describe", job)["files"] == []


def test_new_changed_and_replaced_files_are(job: Path) -> None:
    write(job / "code", {"new.pt": "x", "train.py": "print(2)\n"})
    (job / "code/run.py").unlink()
    (job / "code/run.py").symlink_to("new.pt")
    assert listed(job) == ["new.pt", "run.py", "train.py"]
    described = answer("describe", job)
    assert set(described["was"]) == {"train.py", "run.py"} and described["was"]["run.py"] == "train.py"


def test_a_touched_file_is_read_once_and_then_known(job: Path) -> None:
    os.utime(job / "code/train.py", (5, 5))
    before = (job / "code.placed").read_text()
    assert listed(job) == [] and (job / "code.placed").read_text() != before
    (job / "code.placed").chmod(0o400)
    assert listed(job) == []


def test_a_file_that_changed_in_place_stays_changed(job: Path) -> None:
    write(job / "code", {"train.py": "print(7)\n"})
    assert listed(job) == listed(job) == ["train.py"]


def test_what_looks_as_before_is_told_in_a_word(job: Path) -> None:
    write(job / "code", {"new.pt": "x"})
    first = answer("list", job, "")
    again = answer("list", job, first["mark"])
    assert again["same"] and "rows" not in again
    write(job / "code", {"new.pt": "y"}, at=7.0)
    assert "rows" in answer("list", job, first["mark"])


def test_caches_pipes_and_sockets_are_nobodys_results(job: Path) -> None:
    names = ("a/__pycache__/m.pyc", "b.pyc", ".triton/x", "torchinductor_me/y", "cache/kept", ".git/config")
    write(job / "code", dict.fromkeys(names, "x"))
    os.mkfifo(job / "code/pipe")
    assert listed(job) == [".git/config", "cache/kept"]


def test_without_a_record_nothing_is_known(job: Path, tmp_path: Path) -> None:
    (job / "code.placed").unlink()
    assert answer("list", job, "") == {"there": False}
    assert answer("list", tmp_path / "no job", "") == {"there": False}
    assert answer("describe", job)["there"] is False and answer("keep", job, "") == {}
    assert (job / "code/train.py").exists()


def test_keep_leaves_what_is_new_and_can_be_done_again(job: Path) -> None:
    write(job / "code", {"out/a.pt": "x", "out/__pycache__/m.pyc": "x", "train.py": "print(2)\n"})
    (job / "code/empty").mkdir()
    for _ in range(2):
        assert answer("keep", job, "1") == {}
        assert below(job / "work") == {"out/a.pt": "x", "train.py": "print(2)\n"}
        assert not (job / "code").exists() and (job / "left").exists()
        assert listed(job) == ["out/a.pt", "train.py"]
    answer("keep", job, "")
    assert not (job / "left").exists()


def test_keep_of_nothing_leaves_nothing(job: Path) -> None:
    answer("keep", job, "")
    assert not (job / "code").exists() and not (job / "work").exists()


def parts(output: bytes) -> list[Any]:
    """The messages of `send`; what is between is the files' content."""
    return [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]


def test_send_tells_what_can_not_be_had_and_goes_on(job: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"key": "secret"})
    write(job / "code", {"a.pt": "content", "b.pt": "x"})
    (job / "code/out").symlink_to(tmp_path / "elsewhere")
    (row,) = (row for row in answer("list", job, "")["rows"] if row[0] == "a.pt")
    asked = [["gone.pt", 1, 1, 1], ["out/key", 6, 1, 1], ["b.pt", 1, 1, 1], ["../../x", 1, 1, 1], row[:4]]
    done = run("send", job, stdin=json.dumps(asked).encode())
    assert done.returncode == 0, done.stderr
    told = parts(done.stdout.replace(b"content", b""))
    assert [message["path"] for message in told[:4]] == ["gone.pt", "out/key", "b.pt", "../../x"]
    assert all("why" in message for message in told[:4]) and b"secret" not in done.stdout
    assert told[4:] == [{"path": "a.pt"}, {"whole": True}]


def test_what_can_not_be_read_is_told(job: Path) -> None:
    write(job / "code", {"mine/a.pt": "x", "b.pt": "x"})
    (job / "code/mine").chmod(0)
    assert answer("list", job, "")["left"] == [["mine", "Permission denied"]]
    (job / "code/mine").chmod(0o700)


def test_describe_leaves_out_links_that_lead_out(job: Path) -> None:
    (job / "code/away").symlink_to("/etc/passwd")
    (job / "code/near").symlink_to("train.py")
    described = answer("describe", job)
    assert [row[0] for row in described["files"]] == ["near"]
    assert described["problems"] == ["away (a link that leads out of the folder)"]
