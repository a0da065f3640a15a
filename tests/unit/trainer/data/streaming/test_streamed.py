import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection, forkserver
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from tests.support.made_folder import fill, write
from tests.support.metrics import records
from trainer.config.scaling import BatchPlan
from trainer.data.batches.augment import Augmentation
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.sampling import Epoch
from trainer.data.streaming import feed as feeding
from trainer.data.streaming import image_folder
from trainer.data.streaming import worker_tuning as workers
from trainer.data.streaming.decode import ImageDataset
from trainer.data.streaming.feed import Feed
from trainer.data.streaming.streamed import Choice, StreamedTest, StreamedTraining, chunked
from trainer.data.streaming.worker_process import prepare_worker
from trainer.errors import UserError

SIZE = 16
Open = Callable[..., StreamedTraining]


def normalize() -> Normalize:
    return Normalize(mean=image_folder.MEAN, std=image_folder.STD, shape=(3, SIZE, SIZE), device=torch.device("cpu"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("images"))


@pytest.fixture
def training() -> Iterator[Open]:
    opened: list[StreamedTraining] = []

    def make(
        root: Path,
        *,
        workers: int | None = 0,
        report: Callable[[Choice], None] = lambda _: None,
        said: list[str] | None = None,
        augmentation: Augmentation | None = None,
        agree: Callable[[float], float] = lambda value: value,
    ) -> StreamedTraining:
        dataset = ImageDataset(files=image_folder.find(root).train, size=SIZE, crop="resized")
        opened.append(
            StreamedTraining(
                dataset,
                normalize(),
                augmentation=augmentation or Augmentation(flip="random", cutout=4),
                seed=0,
                cores=1,
                workers=workers,
                agree=agree,
                say=[].append if said is None else said.append,
                report=report,
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def epoch(number: int = 0, *, ranks: int = 1, rank: int = 0, first: int = 0, batch: int = 8) -> Epoch:
    plan = BatchPlan(world_size=ranks, accumulate=1, micro_batch=batch // ranks)
    return Epoch(plan=plan, rank=rank, seed=0, number=number, first_step=first)


def taken(train: StreamedTraining, place: Epoch) -> list[tuple[Tensor, Tensor]]:
    """Copy batches, which are valid only until the next one."""
    return [(images.clone(), labels.clone()) for images, labels in train.epoch(place)]


def assert_same(ones: list[tuple[Tensor, Tensor]], others: list[tuple[Tensor, Tensor]]) -> None:
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_workers_change_nothing_but_the_speed(root: Path, training: Open) -> None:
    alone, helped = training(root), training(root, workers=2)
    state = torch.get_rng_state()
    for number in range(2):
        expected = taken(alone, epoch(number))
        assert [tuple(images.shape) for images, _ in expected] == [(8, 3, SIZE, SIZE)] * 4
        assert_same(taken(helped, epoch(number)), expected)
    assert torch.equal(torch.get_rng_state(), state)
    first = taken(alone, epoch(0))
    assert not torch.equal(first[0][0], expected[0][0])


def test_ranks_share_the_same_steps(root: Path, training: Open) -> None:
    train = training(root)
    whole = taken(train, epoch())
    halves = [taken(train, epoch(ranks=2, rank=rank)) for rank in range(2)]
    for step, (images, labels) in enumerate(whole):
        for rank in range(2):
            assert torch.equal(halves[rank][step][0], images[rank::2])
            assert torch.equal(halves[rank][step][1], labels[rank::2])


def test_an_epoch_can_be_entered_anywhere(root: Path, training: Open) -> None:
    train = training(root)
    assert_same(taken(train, epoch(first=2)), taken(train, epoch())[2:])


def test_trying_numbers_of_workers_changes_no_image(
    root: Path, training: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "TRIAL_SECONDS", 0.0)
    found: list[Choice] = []
    alone, tuned = training(root), training(root, workers=None, report=found.append)
    number = 0
    while not tuned.settled and number < 20:
        assert_same(taken(tuned, epoch(number, batch=1)), taken(alone, epoch(number, batch=1)))
        number += 1
    assert len(found) == 1
    assert set(found[0].rates) == {0, 1, 2}
    assert tuned.workers == found[0].workers


def test_the_rest_of_a_pass_is_dropped(root: Path, training: Open) -> None:
    train = training(root, workers=1)
    half = train.epoch(epoch())
    next(half)
    half.close()  # type: ignore[attr-defined]  # a generator
    assert_same(taken(train, epoch(1)), taken(training(root), epoch(1)))


@pytest.mark.parametrize("number", [0, 1])
def test_each_test_image_counts_once(root: Path, number: int) -> None:
    dataset = ImageDataset(files=image_folder.find(root).test, size=SIZE, crop="resized")
    test = StreamedTest(dataset, normalize(), workers=lambda: number, say=print)
    shares = [list(test.share(rank, 3, 9)) for rank in range(3)]
    whole = next(iter(test.share(0, 1, 9)))
    assert [len(images) for share in shares for images, _ in share] == [3, 3, 3]
    assert whole[1].tolist() == [0] * 5 + [1] * 4
    for rank, share in enumerate(shares):
        assert torch.equal(share[0][1], whole[1][rank::3])


def test_an_unreadable_image_gives_way_to_the_next(tmp_path: Path, training: Open) -> None:
    root, said = fill(tmp_path, train=4), list[str]()
    (root / "train/cat/0.jpg").write_bytes(b"nothing that anybody could decode")
    train = training(root, said=said, augmentation=Augmentation())
    for number in range(2):
        batches = taken(train, epoch(number))
        assert sum(len(labels) for _, labels in batches) == 8
        assert torch.cat([labels for _, labels in batches]).sum() == 4
    assert len(said) == 1
    assert f"{root}/train/cat/0.jpg" in said[0]
    assert said[0].startswith("warning: ")
    assert said[0].endswith("another image takes its place")


def test_an_unreadable_test_image_is_grey(tmp_path: Path) -> None:
    root, said = fill(tmp_path, train=1, test=2), list[str]()
    (root / "val/dog/1.jpg").write_bytes(b"")
    dataset = ImageDataset(files=image_folder.find(root).test, size=SIZE, crop="resized")
    test = StreamedTest(dataset, normalize(), workers=lambda: 0, say=said.append)
    for _ in range(2):
        images, labels = next(iter(test.share(0, 1, 4)))
        assert labels.tolist() == [0, 0, 1, 1]
        assert images[3].abs().max() < 0.02
        assert images[2].abs().max() > 0.5
    assert len(said) == 1


@pytest.mark.parametrize("number", [0, 1])
def test_a_folder_of_unreadable_images_ends_the_run(tmp_path: Path, training: Open, number: int) -> None:
    root = fill(tmp_path, train=1)
    for name in range(24):
        (root / f"train/cat/{name}.jpg").write_bytes(b"no")
    (root / "train/dog/0.jpg").write_bytes(b"no")
    with pytest.raises(UserError, match=r"^20 images in a row can't be read, the first: .*\.jpg: ") as caught:
        taken(training(root, workers=number), epoch())
    assert caught.value.exit_code == 2


def test_a_killed_worker_ends_the_run_in_one_line(root: Path, training: Open) -> None:
    train = training(root, workers=1)
    batches = train.epoch(epoch(batch=1))
    next(batches)
    os.kill(train._feed._processes[0].pid, signal.SIGKILL)
    with pytest.raises(UserError, match="a worker process that reads images was ended by SIGKILL"):
        list(batches)


def test_a_killed_worker_is_reported_though_its_images_fail_first(
    root: Path, training: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker itself delivers its queue; its server, stopped here, reports its end only after a wait."""
    train = training(root, workers=1)
    batches = train.epoch(epoch(batch=1))
    next(batches)
    loader, (worker,) = train._feed._iterator, train._feed._processes
    # Of two buffers one is ours and one is full: the third image waits for one, the fourth is in the queue.
    wait(lambda: loader._rcvd_idx == 3 and not loader._worker_result_queue.empty())
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]

    def waited(sentinels: list[int], seconds: float) -> None:
        assert seconds >= 1
        os.kill(server, signal.SIGCONT)
        connection.wait(sentinels, 60)

    monkeypatch.setattr(feeding, "connection", Mock(wait=waited))
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(worker.pid, signal.SIGKILL)
        wait(lambda: ") Z " in Path(f"/proc/{worker.pid}/stat").read_text())
        with pytest.raises(UserError, match="a worker process that reads images was ended by SIGKILL"):
            list(batches)
    finally:
        os.kill(server, signal.SIGCONT)


def test_a_worker_killed_between_two_epochs_ends_the_run_in_one_line(root: Path, training: Open) -> None:
    train = training(root, workers=1)
    taken(train, epoch())
    os.kill(train._feed._processes[0].pid, signal.SIGKILL)
    with pytest.raises(UserError, match="a worker process that reads images was ended by SIGKILL"):
        taken(train, epoch(1))
    assert len(taken(train, epoch(1))) == 4


def test_workers_that_can_not_be_started_are_reported(
    root: Path, training: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("torch.utils.data.DataLoader.__iter__", full)
    with pytest.raises(UserError, match=r"reading images failed: .*Resource temporarily unavailable"):
        taken(training(root, workers=1), epoch())


def test_a_worker_stuck_on_dead_storage_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "GRACE_SECONDS", 0.1)
    write(tmp_path / "0.png")
    os.mkfifo(tmp_path / "1.png")  # opening it waits for a writer that never comes
    dataset = ImageDataset(files=image_folder.Files(tmp_path, ["0.png", "1.png"], [0, 0]), size=SIZE, crop="random")
    feed = Feed(dataset, normalize(), say=print)
    batches = feed.batches(chunked([0, 1], 1), 1)
    next(batches)
    end = threading.Thread(target=batches.close, daemon=True)
    end.start()
    end.join(60)
    assert not end.is_alive()
    assert feed._processes == []


def test_ranks_on_gpus_and_ranks_without_try_the_same_numbers(
    root: Path, training: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks, each on a thread; the first believes that it has a GPU that never waits."""
    monkeypatch.setattr(workers, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(workers, "ENOUGH", 1.0)
    meeting = threading.Barrier(2, timeout=240)
    values = [0.0, 0.0]
    found: list[list[Choice]] = [[], []]

    def rank(number: int) -> StreamedTraining:
        def agree(value: float) -> float:
            values[number] = value
            meeting.wait()
            largest = max(values)
            meeting.wait()
            return largest

        return training(root, workers=None, agree=agree, report=found[number].append)

    ranks = [rank(number) for number in range(2)]
    on_gpu = Mock(wraps=ranks[0]._normalize, device=Mock(type="cuda"))
    begun = StreamedTraining._start_tuning

    def as_if(self: StreamedTraining, place: Epoch) -> workers.Tuning:
        own = self._normalize
        self._normalize = on_gpu if self is ranks[0] else own
        tuning = begun(self, place)
        self._normalize = own
        return tuning

    monkeypatch.setattr(StreamedTraining, "_start_tuning", as_if)

    def run(number: int) -> None:
        for each in range(4):
            taken(ranks[number], epoch(each, ranks=2, rank=number, batch=2))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)
    assert set(found[0][0].rates) == {0, 1, 2}
    assert found[0] == found[1]


@pytest.mark.parametrize("batch", [32, 8, 4, 1])  # epochs of 1, 4, 8 and 32 batches
def test_a_run_finds_its_workers_however_short_its_epochs(
    root: Path, tmp_path: Path, train: Callable[..., int], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(workers, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr("trainer.distributed.cores.share", lambda facts, rank: 1)
    flags = ["--dataset", "folder", "--data", str(root), "--image-size", str(SIZE), "--model", "small-cnn"]
    assert train(*flags, "--batch-size", str(batch), "--epochs", "14", "--max-val-items", "2") == 0
    found = records(tmp_path / "run", "workers")
    assert len(found) == 1
    assert set(found[0]["images_per_s"]) == {"0", "1", "2"}
    assert found[0]["workers"] in (0, 1, 2)


def test_a_run_over_a_folder(root: Path, tmp_path: Path, train: Callable[..., int]) -> None:
    flags = ["--dataset", "folder", "--data", str(root), "--image-size", str(SIZE), "--model", "small-cnn"]
    assert train(*flags, "--batch-size", "8", "--epochs", "2", "--workers", "1") == 0
    found = records(tmp_path / "run", "epoch")
    assert [(record["epoch"], record["step"]) for record in found] == [(1, 4), (2, 8)]


def _signalled(number: int) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), each)
    prepare_worker(number)


def test_a_worker_that_is_just_starting_outlives_the_jobs_signals(
    root: Path, training: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "prepare_worker", _signalled)
    assert len(taken(training(root, workers=1), epoch())) == 4


def session(leader: int) -> list[int]:
    """Return a session's living processes, without its leader."""
    living = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, *_, sid = (path / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(sid) == leader and state != "Z" and int(path.name) != leader:
            living.append(int(path.name))
    return living


def wait(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    root = tmp_path / "images"
    for name in ("train/cat/0.png", "val/cat/0.png"):
        write(root / name)
    for copy in range(1, 600):
        os.link(root / "train/cat/0.png", root / f"train/cat/{copy}.png")
    words = ["--dataset", "folder", "--data", str(root), "--model", "small-cnn", "--image-size", "32"]
    words += ["--batch-size", "1", "--workers", "2", "--epochs", "1000", "--run-dir", str(tmp_path / "run")]
    command = [sys.executable, "-m", "trainer", *words]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        wait(lambda: (metrics.exists() and '"step"' in metrics.read_text()) or process.poll() is not None)
        assert len(session(process.pid)) >= 4  # two workers, their server, and Python's keeper of shared memory
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)  # as a terminal does: to everybody
            os.killpg(process.pid, signal.SIGTERM)  # and torchrun upon that
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), errors
        assert errors == b"" or number == signal.SIGKILL, errors
        wait(lambda: not session(process.pid))
