"""Worker processes: where they come from, and how they end."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver

import torch


def start_server() -> None:
    """Starts the process that workers are forked from, in the background: it imports torch and torchvision first."""
    multiprocessing.set_forkserver_preload(["trainer.data.streaming.worker_server"])
    forkserver.ensure_running()


def prepare_worker(number: int) -> None:
    """Called in each worker before its first chunk."""
    del number
    for each in (signal.SIGINT, signal.SIGTERM):  # again, should the server not have been ours
        signal.signal(each, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the trainer is gone: its parent, by the kernel's reckoning, is the server."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
