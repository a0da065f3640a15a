"""A pull that is interrupted is tried again; one that can't succeed isn't."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from ansible.module_utils.ringmaster.image import transfer
from ansible.module_utils.ringmaster.image.tunnel import no_tunnel

LOST = "echo 'read: connection reset by peer'; exit 1"


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let `docker pull` do what is given, one script a try; returns the list of those still to come."""

    def prepare(*scripts: str) -> list[str]:
        left = list(scripts)

        def start(_verb: str, _name: str, _home: str, _timeout: float) -> subprocess.Popen[str]:
            words = ["sh", "-c", left.pop(0)]
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        monkeypatch.setattr(transfer, "transfer", start)
        monkeypatch.setattr(transfer, "_PAUSES", (0, 0, 0))
        return left

    return prepare


def run(keep: Callable[[], None] = lambda: None) -> None:
    transfer.run("pull", "name", home="/", seconds=60, keep=keep)


def test_it_is_tried_again(pulls: Callable[..., list[str]]) -> None:
    left = pulls(LOST, LOST, "true", "false")
    run()
    assert left == ["false"]


def test_after_some_tries_the_last_reason_is_said(pulls: Callable[..., list[str]]) -> None:
    pulls(LOST, LOST, LOST, "echo Error response from daemon: timed out; exit 1")
    with pytest.raises(ValueError, match=r"^timed out$"):
        run()


def test_what_time_does_not_mend_is_said_at_once(pulls: Callable[..., list[str]]) -> None:
    left = pulls("echo manifest unknown; exit 1", "true")
    with pytest.raises(ValueError, match="manifest unknown"):
        run()
    assert left == ["true"]


def test_the_way_is_kept_open_all_the_while(pulls: Callable[..., list[str]]) -> None:
    pulls("sleep 1")
    seen: Iterator[int] = iter(range(100))
    run(keep=lambda: next(seen) and None)
    assert next(seen) >= 3


def test_a_way_that_does_not_open_is_tried_again_too(pulls: Callable[..., list[str]]) -> None:
    left = pulls("true")
    tries = iter([OSError("no route"), OSError("no route"), None])

    def keep() -> None:
        found = next(tries, None)
        if found is not None:
            raise found

    run(keep)
    assert left == []


@pytest.mark.parametrize(
    ("said", "reason", "remedy"),
    [
        ("Warning\nops@node1: Permission denied (publickey).\n", "Permission denied", "make provision TAGS=ssh_mesh"),
        ("ssh: connect to host node1 port 22: Connection refused\n", "port 22", "make provision TAGS=ssh_mesh"),
        ("channel 2: open failed: administratively prohibited: open failed\n", "prohibited", "AllowTcpForwarding"),
        ("channel 2: open failed: connect failed: Connection refused\n", "refused", "delivery goes on at node1"),
        ("", "registry at node1 does not answer", "delivery goes on at node1"),
    ],
)
def test_why_there_is_no_tunnel_is_said_with_what_mends_it(said: str, reason: str, remedy: str) -> None:
    problem = no_tunnel("node1", "ops", said)
    assert problem.startswith("no tunnel to node1 by SSH as ops (")
    assert reason in problem.partition("): ")[0]
    assert remedy in problem.partition("): ")[2]
