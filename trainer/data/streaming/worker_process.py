"""Worker processes: where they come from, and how they end."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver

import torch


def start_server() -> None:
    """Start, in the background, the process that workers are forked from: it imports torch and torchvision first."""
    multiprocessing.set_forkserver_preload(["trainer.data.streaming.worker_server"])
    forkserver.ensure_running()


def prepare_worker(number: int) -> None:
    """Prepare a worker before its first chunk. Torch's loader calls this in each worker."""
    del number
    for each in (signal.SIGINT, signal.SIGTERM):  # again, in case the server wasn't ours
        signal.signal(each, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the trainer is gone. For the kernel, its parent is the server, not the trainer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
