"""A pull over the WAN that is interrupted is tried again; one that can't succeed isn't. A push says its digest."""

import pytest
from ansible.module_utils.ringmaster.image import transfer

LOST = "echo 'read: connection reset by peer'; exit 1"
DIGEST = "sha256:" + "a" * 64


class Docker:
    """Lets `docker` do what is given, one script a try."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: list[str] = []
        self.words: list[str] = []
        monkeypatch.setattr(transfer, "command", self.command)
        monkeypatch.setattr(transfer, "_PAUSES", (0, 0, 0))

    def command(self, _home: str, *words: str) -> tuple[list[str], dict[str, str]]:
        self.words.append(" ".join(words))
        return ["sh", "-c", self.left.pop(0)], {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    return Docker(monkeypatch)


def pull() -> None:
    transfer.pull("name", home="/", seconds=60)


def test_it_is_tried_again(docker: Docker) -> None:
    docker.left = [LOST, LOST, "true", "false"]
    pull()
    assert docker.left == ["false"]
    assert docker.words == ["pull name"] * 3


def test_after_some_tries_the_last_reason_is_said(docker: Docker) -> None:
    docker.left = [LOST, LOST, LOST, "echo Error response from daemon: timed out; exit 1"]
    with pytest.raises(ValueError, match=r"^timed out$"):
        pull()


def test_what_time_does_not_mend_is_said_at_once(docker: Docker) -> None:
    docker.left = ["echo manifest unknown; exit 1", "true"]
    with pytest.raises(ValueError, match="manifest unknown"):
        pull()
    assert docker.left == ["true"]


def test_a_pull_that_takes_too_long_is_ended(docker: Docker) -> None:
    docker.left = ["exec sleep 600"]
    with pytest.raises(ValueError, match="took longer than 1 s"):
        transfer.pull("name", home="/", seconds=0)


def test_a_push_says_its_digest() -> None:
    assert transfer.pushed_digest(f"1234: Pushed\n0123abcd: digest: {DIGEST} size: 949\n") == DIGEST
    with pytest.raises(ValueError, match=r"names no digest \(fine\)"):
        transfer.pushed_digest("fine\n")
