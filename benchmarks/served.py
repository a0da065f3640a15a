"""Processes that measure on request, one line for each question, and wait for their turn in between.

So that several ways can be measured in turn without starting torch for each value.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT

_LAST_WORDS_S = 10
"""How long a process that failed may take to say why."""
ANSWER_S = 600.0
"""How long an answer may take: the first waits for torch, and for torch.compile."""


class Served:
    """A process that answers questions; use it in `with`."""

    def __init__(self, module: str, setting: Mapping[str, Any], *, limit: float = ANSWER_S) -> None:
        """Start `python -m module` with the setting, as JSON, for its only argument; it calls `serve`.

        `limit`: seconds that an answer may take.
        """
        self._module, self._limit = module, limit
        # The profiler's library tells of each of its starts, and of GPUs it misses.
        environment = {**os.environ, "KINETO_LOG_LEVEL": "99"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(setting)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def ask(self, what: str, amount: float) -> Any:
        """Return the answer to a question.

        Raises:
            RingmasterError: the process failed, and said why on the screen; or it took too long, and was ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{what} {amount}\n")
            with limited(self._process, self._limit) as late:
                answer = self._process.stdout.readline()
        except BrokenPipeError:
            late, answer = threading.Event(), ""
        if late.is_set():
            raise RingmasterError(f"{self._module}: no answer after {self._limit:g} s", exit_code=ExitCode.FAILED)
        if not answer:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST_WORDS_S)
            raise RingmasterError(f"{self._module} failed, see above", exit_code=ExitCode.FAILED)
        return json.loads(answer)


def serve(make: Callable[[], Mapping[str, Callable[[Any], Any]]]) -> None:
    """Be the process's side: answer each line "<what> <amount>" on standard input with a line of JSON.

    `make`: prepares, and returns what is called for each <what>.
    """
    with quiet_interrupt(), os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # what is printed on the way is no answer
        known = make()
        for line in sys.stdin:
            what, amount = line.split()
            answers.write(json.dumps(known[what](json.loads(amount))) + "\n")


@contextmanager
def limited(process: subprocess.Popen[str], seconds: float) -> Iterator[threading.Event]:
    """Kill the process if the `with` block takes longer; the event is then set."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    clock = threading.Timer(seconds, end)
    clock.start()
    try:
        yield late
    finally:
        clock.cancel()


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """Ignore Ctrl-C, which reaches every process of the terminal: the one that started us reports it."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
