"""Prepares the server that worker processes are forked from; imported there and nowhere else.

Workers come from a server of their own for two reasons. A fork of the trainer would hold its sockets open, so other
nodes would not notice its death. And forking a process with threads, of which torch has many, may leave locks that
nobody releases.
"""

import signal

from trainer.data.streaming import decode

# Ctrl-C and torchrun's SIGTERM reach every process, but the trainer still needs its images then, up to the end of its
# step. Workers end when it tells them to, or when it is gone. They also block the signals, because both
# multiprocessing and torch set handlers of their own in each worker, a moment before `prepare_worker` can ignore them.
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
decode.io()  # here once, not in every worker
