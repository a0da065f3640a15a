"""What the server does once from which worker processes are forked; imported there and nowhere else.

Workers come from a server of their own because a fork of the trainer would hold its sockets open, so that other nodes
would not notice its death, and because forking a process with threads, of which torch has many, may leave locks that
nobody opens.
"""

import signal

from trainer.data.streaming import decode

# Ctrl-C and torchrun's SIGTERM reach every process of the job, but the trainer still needs its images then: up to the
# end of its step. Workers end when it tells them to, or when it is gone. They hold signals back too, as both
# multiprocessing and torch set handlers of their own in each worker, a moment before `prepare_worker` can ignore them.
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
decode.io()  # here once, not in every worker
