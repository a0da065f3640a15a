"""A job's folder on a node; the program runs as it does there, from its source alone."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.on_node import job_folder
from tests.support.job_folder import OWNER, TOKEN, mode, packed

SOURCE = Path(job_folder.__file__).read_text()


def special(name: str, kind: bytes, leads: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, leads, 0o700
    return entry


class Node:
    """A node's folder of jobs."""

    def __init__(self, jobs: Path) -> None:
        self.jobs, self.data = jobs, jobs.parent / "data"
        for folder in (self.jobs, self.data):
            folder.mkdir(mode=0o700)

    def ask(
        self, verb: str, *words: str, files: bytes | None = None, largest: int | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Args: largest: no file may become larger, in bytes, as on a disk that is full."""
        command = [sys.executable, "-IS", "-c", SOURCE, verb, str(self.jobs), *words]
        if largest is not None:
            command[:0] = ["prlimit", f"--fsize={largest}"]
        return subprocess.run(command, input=packed() if files is None else files, capture_output=True, check=False)

    def answer(self, verb: str, *words: str, files: bytes | None = None) -> dict[str, Any]:
        done = self.ask(verb, *words, files=files)
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def try_to_prepare(
        self, name: str, *members: tarfile.TarInfo | tuple[str, str], owner: str = OWNER, whose: str = TOKEN
    ) -> "subprocess.CompletedProcess[bytes]":
        words = (name, owner, str(self.data), whose)
        return self.ask("prepare", *words, files=packed(("plan.json", "{}"), *members))

    def prepare(
        self, name: str = "job", *members: tarfile.TarInfo | tuple[str, str], owner: str = OWNER, whose: str = TOKEN
    ) -> Path:
        done = self.try_to_prepare(name, *members, owner=owner, whose=whose)
        assert (done.returncode, done.stdout) == (0, b"{}\n"), done.stderr.decode()
        return self.jobs / name

    def marks(self, below: str = "") -> dict[str, list[int]]:
        return dict(self.answer("marks", "job", below, files=b"")["marks"])

    def all(self) -> list[str]:
        return sorted(str(path.relative_to(self.jobs)) for path in self.jobs.rglob("*") if not path.is_dir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "jobs")


def test_a_folder_is_made_that_only_its_owner_can_look_into(node: Node) -> None:
    folder = node.prepare("job", ("secrets", "KEY=geheim"), ("run/checkpoints/a/b.pt", "1"))
    assert node.all() == ["job/plan.json", "job/run/checkpoints/a/b.pt", "job/secrets", "job/token"]
    folders = (folder, folder / "run", folder / "run/checkpoints", folder / "home", node.jobs / ".cache")
    for path in (*folders, node.data / "own"):
        assert mode(path) == 0o700
    for file in (folder / "plan.json", folder / "secrets", folder / "run/checkpoints/a/b.pt"):
        assert mode(file) == 0o600
    assert (folder / "secrets").read_text() == "KEY=geheim"


def test_a_name_that_is_taken_is_refused_and_left_as_it_is(node: Node) -> None:
    node.prepare("job", ("node", "first"))
    done = node.try_to_prepare("job", ("node", "second"), whose="another's")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"there is a job job on this node already; choose another NAME\n"
    assert ((node.jobs / "job/node").read_text(), (node.jobs / "job/token").read_text()) == ("first", TOKEN)


def test_only_the_launcher_that_created_a_folder_discards_it(node: Node) -> None:
    node.prepare("job", whose="theirs")
    node.answer("discard", "job", TOKEN)
    assert node.all() == ["job/plan.json", "job/token"]
    (node.jobs / "job/token").unlink()
    node.answer("discard", "job", "")
    assert node.all() == ["job/plan.json"], "a folder without a token belongs to nobody, so nobody removes it"
    node.prepare("ours")
    node.answer("discard", "ours", TOKEN)
    assert not (node.jobs / "ours").exists()


def test_the_users_data_sets_of_other_jobs_stay(node: Node) -> None:
    (node.data / "own").mkdir()
    (node.data / "own/theirs").touch()
    node.prepare()
    assert [path.name for path in (node.data / "own").iterdir()] == ["theirs"]


def test_a_node_that_was_not_provisioned_is_told_so(tmp_path: Path) -> None:
    node = Node(tmp_path / "jobs")
    node.jobs.rmdir()
    done = node.try_to_prepare("job")
    assert done.returncode == 3 and b"does not exist; make provision creates it" in done.stderr


@pytest.mark.parametrize(
    "hostile",
    [
        ("../outside", "x"),
        ("/tmp/outside", "x"),
        ("run/../../outside", "x"),
        special("run/link", tarfile.SYMTYPE, "/etc"),
        special("run/link", tarfile.SYMTYPE, "../.."),
        special("run/link", tarfile.SYMTYPE, "deep/../../../jobs"),
        special("link", tarfile.SYMTYPE, ".."),
        special("run/hard", tarfile.LNKTYPE, "plan.json"),
        special("run/pipe", tarfile.FIFOTYPE),
        special("run/device", tarfile.CHRTYPE),
    ],
)
def test_what_does_not_belong_in_a_folder_is_refused_and_nothing_is_left(node: Node, hostile: Any) -> None:
    done = node.try_to_prepare("job", hostile)
    assert done.returncode == 3
    assert b"can't be put into a job's folder" in done.stderr and b"Traceback" not in done.stderr
    assert not (node.jobs / "job").exists()
    assert not (node.jobs.parent / "outside").exists()


def test_links_that_stay_inside_come_along(node: Node) -> None:
    links = (
        special("run/checkpoints/last.pt", tarfile.SYMTYPE, "step-1.pt"),
        special("run/checkpoints/up.pt", tarfile.SYMTYPE, "../other.pt"),
    )
    folder = node.prepare("job", ("run/checkpoints/step-1.pt", "one"), *links)
    assert (folder / "run/checkpoints/last.pt").readlink() == Path("step-1.pt")
    assert (folder / "run/checkpoints/last.pt").read_text() == "one"
    assert (folder / "run/checkpoints/up.pt").readlink() == Path("../other.pt")


@pytest.mark.parametrize(
    "members",
    [
        (special("run/a", tarfile.SYMTYPE, "checkpoints"), ("run/a/step-1.pt", "x")),
        (special("run/a", tarfile.SYMTYPE, "."), special("run/a/b", tarfile.SYMTYPE, "../..")),
    ],
)
def test_nothing_is_written_through_a_link(node: Node, members: Any) -> None:
    done = node.try_to_prepare("job", *members)
    assert done.returncode == 3 and b"leads through a link" in done.stderr
    assert not (node.jobs / "job").exists()


def test_a_tar_that_breaks_off_leaves_nothing(node: Node) -> None:
    whole = packed(("plan.json", "{}"), ("run/checkpoints/a.pt", "x" * 100_000))
    done = node.ask("prepare", "job", OWNER, str(node.data), TOKEN, files=whole[:50_000])
    assert done.returncode != 0
    assert not (node.jobs / "job").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_it_to_the_containers_user(node: Node) -> None:
    (node.data / "own").mkdir()
    (node.data / "own/theirs").touch()
    node.prepare("job", ("secrets", "x"), ("run/checkpoints/a", "x"), owner="10001:10002")
    for path in ("job", "job/run", "job/run/checkpoints/a", "job/home", "job/secrets", ".cache", "../data/own"):
        status = (node.jobs / path).stat()
        assert (status.st_uid, status.st_gid) == (10001, 10002), path
    for path in (node.jobs, node.data, node.data / "own/theirs"):
        assert path.stat().st_uid == 0, path


def test_closing_keeps_the_results_and_drops_what_only_ran(node: Node) -> None:
    folder = node.prepare("job", ("secrets", "KEY=geheim"), ("code/train.py", "x"), ("home/x", "x"))
    (folder / "run/metrics.jsonl").write_text("{}\n")
    node.answer("close", "job", files=packed(("summary.json", '{"state": "succeeded"}'), ("log", "[0] a\n")))
    kept = ["collected", "log", "plan.json", "run/metrics.jsonl", "summary.json", "token"]
    assert node.all() == [f"job/{name}" for name in kept]
    assert not (folder / "home").exists()
    job = node.answer("jobs")["jobs"]["job"]
    assert (job["collected"], job["summary"]) == (True, {"state": "succeeded"})


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="the disk is made full with prlimit")
def test_a_disk_that_refuses_the_record_leaves_all_as_it_was(node: Node) -> None:
    node.prepare("job", ("secrets", "KEY=geheim"), ("code/train.py", "x"), ("home/x", "x"), ("log", "an older one"))
    before = node.all()
    done = node.ask("close", "job", files=packed(("summary.json", "{}"), ("log", "x" * 1000)), largest=100)
    assert (done.returncode, done.stderr) == (1, f"{node.jobs}: File too large\n".encode())
    assert node.all() == before and (node.jobs / "job/log").read_text() == "an older one"
    assert node.answer("jobs")["jobs"]["job"]["collected"] is False


def test_a_record_that_breaks_off_is_none(node: Node) -> None:
    node.prepare("job", ("secrets", "KEY=geheim"))
    before = node.all()
    record = packed(("summary.json", '{"state": "failed"}'), ("log", "x" * 100_000))
    assert node.ask("close", "job", files=record[:50_000]).returncode != 0
    assert node.all() == before


def test_a_record_is_kept_from_one_that_knows_less(node: Node) -> None:
    node.prepare("job")
    for state, kept in (("unknown", "unknown"), ("failed", "failed"), ("unknown", "failed"), ("stopped", "stopped")):
        node.answer("close", "job", files=packed(("summary.json", json.dumps({"state": state})), ("log", state)))
        assert node.answer("jobs")["jobs"]["job"]["summary"] == {"state": kept}
        assert (node.jobs / "job/log").read_text() == kept, "the log that belongs to it"


SEEN = [{"state": state} for state in ("succeeded", "failed", "stopped")]


@pytest.mark.parametrize("less", [None, [], {}, {"state": ["failed"]}, {"state": "what"}, {"state": "unknown"}])
@pytest.mark.parametrize("more", SEEN)
def test_who_has_seen_an_end_knows_more(more: Any, less: Any) -> None:
    assert job_folder.knows_more(more, less) and not job_folder.knows_more(less, more)
    assert not any(job_folder.knows_more(more, other) for other in SEEN), "of two that saw it, none knows more"
    assert not job_folder.knows_more(less, less)


def test_an_end_that_nobody_saw_is_more_than_no_record() -> None:
    assert job_folder.knows_more({"state": "unknown"}, None) and not job_folder.knows_more(None, {"state": "unknown"})


def test_what_is_not_there_is_closed_marked_and_discarded_without_a_word(node: Node) -> None:
    for words in (("close", "job"), ("mark", "job", "stopped"), ("discard", "job", TOKEN)):
        assert node.answer(*words) == {}
    assert node.all() == []


def test_a_code_folder_that_is_a_link_is_unlinked_and_not_followed(node: Node, tmp_path: Path) -> None:
    folder = node.prepare()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").touch()
    (folder / "code").symlink_to(tmp_path / "theirs")
    node.answer("close", "job")
    assert (tmp_path / "theirs/file").exists() and node.answer("jobs")["jobs"]["job"]["collected"]


def test_jobs_are_told_of(node: Node) -> None:
    folder = node.prepare("one", ("node", "gpu-1"))
    (folder / "run/metrics.jsonl").write_text(
        '{"step": 1}\n{"step": 7, "loss": 1}\n{"kind": "event"}\nnull\n{"step": 9'
    )
    node.answer("mark", "one", "stopped")
    node.prepare("two")
    (node.jobs / "a file").touch()
    (node.jobs / "lost+found").mkdir()
    answer = node.answer("jobs")
    assert list(answer["jobs"]) == ["one", "two"], "and not .cache, nor what is no job's"
    assert (answer["jobs"]["one"]["node"], answer["jobs"]["two"]["node"]) == ("gpu-1", "")
    one, two = answer["jobs"]["one"], answer["jobs"]["two"]
    assert abs(answer["time"] - one["made_at"]) < 600 and abs(answer["time"] - time.time()) < 600
    assert (one["last"], one["stopped"], one["collected"], one["summary"]) == (
        {"step": 7, "loss": 1},
        True,
        False,
        None,
    )
    assert abs(answer["time"] - two.pop("made_at")) < 600
    unmarked = {"started": False, "collected": False, "stopped": False}
    assert two == {"node": "", **unmarked, "summary": None, "last": None}


def test_metrics_that_are_no_file_are_not_opened(node: Node, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text('{"step": 1}\n')
    os.mkfifo(node.prepare("pipe") / "run/metrics.jsonl")
    (node.prepare("link") / "run/metrics.jsonl").symlink_to(tmp_path / "theirs")
    (node.prepare("folder") / "run/metrics.jsonl").mkdir()
    answer = node.answer("jobs")["jobs"]
    assert {name: each["last"] for name, each in answer.items()} == {"pipe": None, "link": None, "folder": None}


def test_only_whole_numbers_are_steps(node: Node) -> None:
    path = node.prepare() / "run/metrics.jsonl"
    path.write_text('{"step": 3}\n' + "".join(f'{{"step": {step}}}\n' for step in ("null", '"4"', "5.5", "true", "[]")))
    assert node.answer("jobs")["jobs"]["job"]["last"] == {"step": 3}


def test_of_long_metrics_only_the_end_is_read(node: Node) -> None:
    folder = node.prepare()
    (folder / "run/metrics.jsonl").write_text('{"step": 1}\n' + '{"kind": "event"}\n' * 10_000)
    assert node.answer("jobs")["jobs"]["job"]["last"] is None
    (folder / "run/metrics.jsonl").write_text('{"kind": "event"}\n' * 10_000 + '{"step": 2}\n')
    assert node.answer("jobs")["jobs"]["job"]["last"] == {"step": 2}


def test_a_summary_that_is_no_json_is_none(node: Node) -> None:
    (node.prepare() / "summary.json").write_text("{")
    assert node.answer("jobs")["jobs"]["job"]["summary"] is None


def test_without_a_folder_there_are_no_jobs(tmp_path: Path) -> None:
    node = Node(tmp_path / "jobs")
    node.jobs.rmdir()
    assert node.answer("jobs")["jobs"] == {}


def test_a_record_of_any_depth_hides_no_job(node: Node) -> None:
    node.prepare("job")
    (node.jobs / "job/run/metrics.jsonl").write_bytes(b'{"step": 3}\n' + b"[" * 60_000 + b"\n")
    assert node.answer("jobs")["jobs"]["job"]["last"] == {"step": 3}


def test_closing_leaves_a_working_folder_of_which_it_is_known_what_was_placed(node: Node) -> None:
    folder = node.prepare("job", ("code/snapshot.pt", "x"), ("code.placed", "{}"), ("home/x", "x"))
    node.answer("close", "job", files=packed(("summary.json", '{"state": "succeeded"}')))
    assert (folder / "code/snapshot.pt").exists() and not (folder / "home").exists()


def test_a_job_of_which_something_is_nowhere_else_is_kept(node: Node) -> None:
    for number in range(13):
        node.prepare(f"job{number:02}")
        node.answer("close", f"job{number:02}")
        os.utime(node.jobs / f"job{number:02}/collected", (number, number))
        if number == 0:
            (node.jobs / "job00/left").touch()
    node.prepare("new")
    kept = sorted(path.name for path in node.jobs.iterdir())
    assert kept == [".cache", "job00", *(f"job{number:02}" for number in range(3, 13)), "new"]


def test_the_last_ten_whose_results_were_fetched_are_kept_and_all_others(node: Node) -> None:
    for number in range(13):
        node.prepare(f"job{number:02}")
        if number != 0:  # its results were never fetched
            node.answer("close", f"job{number:02}")
            os.utime(node.jobs / f"job{number:02}/collected", (number, number))
    node.prepare("new")
    kept = sorted(path.name for path in node.jobs.iterdir())
    assert kept == [".cache", "job00", *(f"job{number:02}" for number in range(3, 13)), "new"]


def test_a_disk_that_refuses_is_said_with_the_path(node: Node) -> None:
    (node.jobs / ".cache").write_text("a file is in the way")
    done = node.try_to_prepare("job")
    assert (done.returncode, done.stderr.decode().count("\n")) == (1, 1)
    assert str(node.jobs / ".cache") in done.stderr.decode()
    assert not (node.jobs / "job").exists()


def test_a_file_has_another_mark_after_each_change_also_with_its_time_kept(node: Node) -> None:
    path = node.prepare() / "run/checkpoints/last.pt"
    path.write_text("one")
    (path.parents[1] / "notes").write_text("")
    before, was = node.marks(), path.stat()
    assert sorted(before) == ["checkpoints/last.pt", "notes"] and node.marks() == before
    path.write_text("two")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    after = node.marks("checkpoints")
    assert list(after) == ["checkpoints/last.pt"] and after["checkpoints/last.pt"] != before["checkpoints/last.pt"]
    path.unlink()
    path.symlink_to("nowhere")
    assert list(node.marks("checkpoints")) == ["checkpoints/last.pt"], "a link itself"


def test_of_a_folder_that_is_not_there_nothing_is_marked(node: Node) -> None:
    assert node.marks() == {}
