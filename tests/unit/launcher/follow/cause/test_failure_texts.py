"""What real failures printed, in public threads: whose fault it is, in which words, and what helps."""

import pytest

from launcher.follow.cause import hints
from launcher.follow.cause.failure import Weight, describe, failure_of, weight
from launcher.follow.cause.peer_texts import Says, accused
from tests.support.ends import end
from tests.unit.launcher.follow.cause.failure_texts import TEXTS, Text

ENGINES = [
    ("NVIDIA/nvidia-docker/issues/1034", 'could not select device driver "" with capabilities: [[gpu]]', "nvidia-smi"),
    (
        "NVIDIA/k8s-device-plugin/issues/1431",
        "failed to create task: OCI runtime create failed: runc create failed: unable to start container "
        "process: error "
        "running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as "
        "'legacy'\nnvidia-container-cli: "
        "initialization error: nvml error: driver/library version mismatch: unknown",
        "make provision",
    ),
    ("moby/moby/issues/32658", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock", "systemctl"),
]
"""What engines said that started no container: source, text, words of the hint."""

FRAMES = ("Traceback (most recent call last):", '  File "train.py", line 33, in <module>', "    main()")
WEIGHTS = {Says.OWN: Weight.CAUSE, Says.MAYBE_PEER: Weight.MAYBE, Says.PEER: Weight.EFFECT}


def test_there_are_enough_from_enough_threads() -> None:
    assert len(TEXTS) + len(ENGINES) >= 40
    assert len({each.source for each in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.source)
def test_what_is_made_of_it(text: Text, marked: bool) -> None:
    lines = tuple(text.lines.split("\n"))
    if text.signal is None:
        lines = (*FRAMES, *lines)
        if marked:  # as torch does it once the process group is there
            lines = tuple(f"[rank1]: {line}" for line in lines)
    failed = end(1, lines=lines, signal=text.signal, exit_code=134 if text.signal else 1)
    assert weight(failed) is WEIGHTS[text.says]
    reason = describe(failed)
    assert text.reason in reason and "\n" not in reason
    assert text.hint in (failure_of(failed, reason).hint or "")
    named = accused(text.lines)
    assert (named.ranks, named.addresses) == (frozenset(text.ranks), frozenset(text.addresses))


@pytest.mark.parametrize(("source", "said", "hint"), ENGINES)
def test_an_engine_that_starts_nothing(source: str, said: str, hint: str) -> None:
    assert source and hint in (hints.of_text(said) or "")
