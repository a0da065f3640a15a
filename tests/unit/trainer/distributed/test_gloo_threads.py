"""Gloo's threads give way to threads that compute and send."""

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from trainer.distributed.gloo_threads import let_others_first

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="scheduling classes are Linux's")


def _classes() -> dict[str, set[int]]:
    """Return the scheduling classes of this process's threads, by name."""
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        found.setdefault((task / "comm").read_text().strip(), set()).add(os.sched_getscheduler(int(task.name)))
    return found


def test_the_threads_of_a_real_group_are_found_by_their_name() -> None:
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=30))
    deadline = time.monotonic() + 30
    while "gloo_tcp_loop" not in (before := _classes()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread gives itself its name once it runs
    assert before["gloo_tcp_loop"] == {os.SCHED_OTHER}
    assert let_others_first() >= 1
    after = _classes()
    assert after.pop("gloo_tcp_loop") == {os.SCHED_BATCH}
    before.pop("gloo_tcp_loop")
    assert {name: after[name] for name in before} == before  # torch may have started one more meanwhile
    assert group.size() == 1


def test_a_thread_that_is_of_another_kind_keeps_its_class() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        let_others_first()
        assert os.sched_getscheduler(thread.native_id or 0) == os.SCHED_OTHER
    finally:
        ended.set()
        thread.join()


def test_threads_that_are_gone_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()  # without the file comm
    assert let_others_first(tmp_path) == 0
