"""A process for test_bench_served."""

import json
import sys
import time

from benchmarks.served import serve


def _ask(count: int) -> object:
    print("not an answer")
    if count < 0:
        raise ValueError("below nothing")
    return [json.loads(sys.argv[1]), count]


if __name__ == "__main__":
    serve(lambda: {"words": _ask, "sleep": time.sleep})
