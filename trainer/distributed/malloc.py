"""malloc settings: the C library's allocator, tuned for tensors that come and go at every step."""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's mallopt(3), from its <malloc.h>."""
LARGE = 1 << 30
MMAP_THRESHOLD_MAX = 32 << 20
"""The largest that glibc accepts on 64-bit machines, HEAP_MAX_SIZE / 2."""


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks for the next step; no effect with other C libraries.

    By default, glibc maps and unmaps each activation at every step, and its pages fault in anew, which on a CPU costs
    about a third of the training time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_MAX)
    mallopt(M_TRIM_THRESHOLD, LARGE)
    mallopt(M_TOP_PAD, 64 << 20)
