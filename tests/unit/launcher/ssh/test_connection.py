"""One connection to a node, to a real SSH server in this process."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import paramiko
import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.ssh import streams
from launcher.ssh.connection import LostError, Remote
from tests.support.cluster.sshd import HANG_UP, Place

WORDS = ["--", "a b", "$(touch /tmp/no)", "`id`", "'\"", ";", "&&", "|", "*", "\n", "ü", "", "\\"]


def test_words_arrive_as_they_are_and_what_it_reads_and_says_too(node: Remote) -> None:
    done = node.run(["sh", "-c", 'printf "%s|" "$@"; cat; echo why >&2; exit 7', "sh", *WORDS], stdin=[b"in", b"put"])
    assert done.text == "".join(f"{word}|" for word in WORDS) + "input"
    assert (done.code, done.why) == (7, "why")


def test_more_than_a_window_of_everything(node: Remote) -> None:
    big = b"0123456789abcdef" * (1 << 18)
    done = node.run(["sh", "-c", "cat; head -c 5000000 /dev/zero >&2"], stdin=big)
    assert (done.code, len(done.err), done.out == big) == (0, 5_000_000, True)


def test_a_program_that_reads_nothing_says_by_its_exit_code_why(node: Remote) -> None:
    assert node.run(["false"], stdin=b"x" * 10_000_000).code == 1
    assert node.run(["sh", "-c", "exit 3"]).why == "exit code 3"


def test_both_streams_are_handed_on(node: Remote) -> None:
    heard: list[bytes] = []
    assert node.stream(["sh", "-c", "echo out; echo err >&2"], on_output=heard.append) == 0
    assert sorted(b"".join(heard).splitlines()) == [b"err", b"out"]


def test_a_connection_that_breaks_is_lost(node: Remote) -> None:
    transport = node._transport
    with pytest.raises(LostError, match=r"^node1: the connection is lost") as raised:
        node.run(["sh", "-c", f"exit {HANG_UP}"])
    assert raised.value.exit_code == ExitCode.CLUSTER
    transport.join(20)  # it wakes who waits for an answer, and only then says that it has ended
    assert not node.alive
    for ask in (lambda: node.run(["true"]), node.sftp):
        with pytest.raises(LostError):
            ask()


def test_files_and_commands_share_the_connection(node: Remote, place: Place) -> None:
    assert node.sftp() is node.sftp()
    assert len(place.machines[0].transports) == 1
    assert node.port == place.machines[0].port


def test_each_thread_asks_for_files_by_itself(node: Remote, place: Place) -> None:
    """Of two that share a client one loses its answers."""
    found: list[paramiko.SFTPClient] = []
    threads = [threading.Thread(target=lambda: found.append(node.sftp())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client) for client in (*found, node.sftp())}) == 3
    assert len(place.machines[0].transports) == 1


class TestHowLong:
    """The limit counts from the last byte either way, by a clock of the test's own."""

    @pytest.fixture
    def pass_s(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
        now = [0.0]

        def monotonic() -> float:
            return now[0]

        def pass_s(seconds: float) -> None:
            now[0] += seconds
            threading.Event().wait(0.2)  # whoever listens sees how late it is

        monkeypatch.setattr(streams, "_TICK_S", 0.01)
        monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=monotonic))
        return pass_s

    def test_who_is_sent_much_has_time(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        def pieces() -> Iterator[bytes]:
            for number in range(5):
                pass_s(50)
                yield b"%d" % number

        assert node.run(["cat"], stdin=pieces(), limit_s=60).text == "01234"

    def test_who_is_sent_nothing_and_says_nothing_is_lost(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        over = threading.Event()

        def pieces() -> Iterator[bytes]:
            yield b"begun"
            pass_s(61)
            over.wait(20)

        try:
            with pytest.raises(LostError, match="node1"):
                node.run(["sh", "-c", "cat >/dev/null"], stdin=pieces(), limit_s=60)
        finally:
            over.set()
        assert node.alive, "others may still talk over it"

    def test_long_work_may_be_silent_for_ever(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        def pieces() -> Iterator[bytes]:
            pass_s(1e6)
            yield b"at last"

        heard: list[bytes] = []
        assert node.stream(["cat"], stdin=pieces(), on_output=heard.append) == 0
        assert b"".join(heard) == b"at last"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied"), r"^can't be sent: \[Errno 13\] Permission denied$"),
        (RingmasterError("log: changes while it is read"), "^log: changes while it is read$"),
    ],
)
def test_what_can_not_be_read_here_is_no_fault_of_the_connection(node: Remote, error: Exception, said: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        raise error

    with pytest.raises(RingmasterError, match=said) as raised:
        node.run(["cat"], stdin=pieces())
    assert not isinstance(raised.value, LostError)
    assert node.run(["echo", "back"]).text == "back\n"
