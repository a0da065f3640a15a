"""A node in a container, followed over connections that break; the engine is a fake, the threads are real."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import APIError, NotFound

from launcher.cluster.engine import node as docker_node
from launcher.cluster.engine.node import _KILL, DockerNode, _memory
from launcher.cluster.sockets import SOCKETS, has_socket
from launcher.inventory.hosts import Host
from launcher.job.plan import RANK_WORDS
from launcher.ssh.connection import Trouble
from tests.support.cluster.engine import refusal, stamp
from tests.support.cluster.followed_node import Followed
from tests.support.cluster.live_engine import FakeRemote, LiveEngine, until
from tests.support.plans import cluster_plan

_RANK_COMMAND = " ".join(cluster_plan(1).nodes[0].argv[-RANK_WORDS:])

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0A00000A:9C40 0B00000A:743C 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0A00000A:9C41 0B00000A:753C 06 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
"""


@pytest.mark.parametrize(
    ("code", "shown"), [(0, 0), (1, 1), (3, 3), (137, -9), (143, -15), (130, -2), (129, 129), (255, 255)]
)
def test_what_it_printed_and_how_it_ended(nodes: list[DockerNode], code: int, shown: int) -> None:
    one = Followed(nodes, "a", "b")
    assert one.node.poll() is None
    one.engine.end(code)
    assert one.rest() == b"a\nb\n"
    assert one.node.poll() == shown


def test_a_connection_that_breaks_is_made_anew_and_nothing_is_lost(
    nodes: list[DockerNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Host] = []
    seen = threading.Event()

    def open_all(hosts: Sequence[Host], pins: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        tries.extend(hosts)
        if len(tries) < 3:
            return {}, {hosts[0].name: "down"}
        assert seen.wait(20), "it is out of reach until the test has seen that"
        one.engine.connected = True
        return {hosts[0].name: FakeRemote(one.engine, hosts[0].name)}, {}

    monkeypatch.setattr(docker_node, "open_all", open_all)
    one = Followed(nodes, "a", "b")
    assert one.node.read()
    one.engine.connected, one.remote.cut = False, True
    until(lambda: one.node.unreachable_since is not None)
    assert one.node.poll() is None, "who is out of reach has not ended"
    one.engine.lines.append(b"c")
    seen.set()
    until(lambda: one.node.remote is not one.remote)
    assert one.remote.closed, "or whoever waits for its answer would wait for ever"
    until(lambda: one.node.unreachable_since is None)
    one.engine.end(0)
    assert one.rest().endswith(b"c\n")
    assert (one.node.poll(), len(tries)) == (0, 3)


def test_a_node_that_the_plan_calls_by_another_name_is_reached_again_too(
    nodes: list[DockerNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_all(hosts: Sequence[Host], pins: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        one.engine.connected = True
        return {"gpu-a": FakeRemote(one.engine, "gpu-a")}, {}

    monkeypatch.setattr(docker_node, "open_all", open_all)
    one = Followed(nodes, "a", name="gpu-a")
    assert one.node.read()
    one.engine.connected, one.remote.cut = False, True
    until(lambda: one.node.remote is not one.remote)
    one.engine.end(0)
    one.rest()
    assert one.node.poll() == 0


def test_how_a_container_ended_that_somebody_removed_is_for_others_to_say(nodes: list[DockerNode]) -> None:
    one = Followed(nodes, "a")
    assert one.node.read() == b"a\n"
    assert not one.node.gone
    one.engine.inspected.clear()
    assert one.rest() == b""
    assert (one.node.poll(), one.node.gone) == (0, True), "it was not killed"


def test_what_is_printed_last_while_the_stream_is_broken_is_heard(nodes: list[DockerNode]) -> None:
    """The stream ends as if it were complete; then the container prints once more, and ends."""

    class Breaks(LiveEngine):
        broken = False

        def logs(self, container: str, *, tail: int | str, follow: bool, **how: Any) -> Iterator[bytes]:
            if self.broken:
                yield from super().logs(container, tail=tail, follow=follow, **how)
                return
            self.broken = True
            yield f"{stamp(0)} ".encode() + self.lines[0] + b"\n"
            self.lines.append(b"last words")
            self.end(1)

    one = Followed(nodes, "a", engine=Breaks())
    assert one.rest() == b"a\nlast words\n"
    assert one.node.poll() == 1


def test_whoever_lets_go_hears_no_more(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    one.node.release()
    one.engine.connected = False
    assert one.rest() == b""
    assert one.node.poll() is None, "it goes on"


def test_it_has_joined_once_its_agent_is_at_the_rendezvous(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    assert not one.node.joined()
    one.remote.table = TCP.replace("743C", "733C").replace("0100007F:733C", "0100007F:0016")
    until(one.node.joined)
    other = Followed(nodes)
    other.node.ranks[0] = 7
    assert other.node.joined(), "its ranks report"


def test_signals_go_to_all_ranks_whether_they_were_heard_of_or_not_or_to_one(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    one.node.signal_ranks(signal.SIGTERM, only=1)  # which has not started yet
    one.node.signal_ranks(signal.SIGINT)
    until(lambda: one.calls("exec"))
    one.node.ranks.update({0: 70, 1: 71})
    one.node.signal_ranks(signal.SIGINT)
    until(lambda: len(one.calls("exec")) == 2)
    one.node.signal_ranks(signal.SIGTERM, only=1)
    until(lambda: len(one.calls("exec")) == 3)
    all_of_them = ("sh", "-2", _RANK_COMMAND)
    assert [words[5:] for words in one.calls("exec")] == [all_of_them, all_of_them, ("sh", "-15", _RANK_COMMAND, "71")]
    assert {words[2:5] for words in one.calls("exec")} == {("/bin/sh", "-c", _KILL)}


GUARD = """
kill() {
    signal=$1
    shift
    for pid; do
        case " $OURS " in *" $pid "*) command kill "$signal" "$pid" ;; *) echo "$pid" ;; esac
    done
}
"""
"""Comes before the script: limits it to the test's own processes, and prints which others it would have signalled."""


@pytest.mark.skipif(sys.platform != "linux", reason="it runs in containers")
class TestTheScriptThatSignals:
    """The script runs here as in a container, and finds processes of the test."""

    @pytest.fixture
    def start(self, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
        """Start a program that ends with 42 on SIGTERM; `words` are its command line."""
        program = tmp_path / "rank.py"
        program.write_text(
            "import os, signal, time\nsignal.signal(15, lambda *_: os._exit(42))\n"
            "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
        )
        started: list[subprocess.Popen[bytes]] = []

        def start(*more: str, name: str = "python") -> subprocess.Popen[bytes]:
            words = [name, "-IS", str(program), *more]
            started.append(subprocess.Popen(words, executable=sys.executable, stdout=subprocess.PIPE))
            assert started[-1].stdout is not None and started[-1].stdout.readline() == b"ready\n"
            return started[-1]

        yield start
        for process in started:
            process.kill()
            process.communicate()

    def signal(self, command: str, started: Sequence[subprocess.Popen[bytes]], *pids: int) -> None:
        words = ["/bin/sh", "-c", GUARD + _KILL, "sh", "-15", command, *map(str, pids)]
        ours = " ".join(str(each.pid) for each in started)
        done = subprocess.run(words, check=True, capture_output=True, timeout=60, env={**os.environ, "OURS": ours})
        assert done.stdout == b"", "these are not ours"

    def test_all_ranks_are_found_by_their_command_line(self, tmp_path: Path, start: Any) -> None:
        command = f"python -IS {tmp_path / 'rank.py'}"
        others = [start("more"), start(name="/usr/python"), start(name=f"env {command}")]
        ranks = [start(), start()]
        self.signal(command, [*others, *ranks])
        assert [rank.wait(20) for rank in ranks] == [42, 42]
        # If the others had been signalled, they would end before one that starts and is signalled only now.
        last = start()
        self.signal(command, [*others, last])
        assert last.wait(20) == 42
        assert [other.poll() for other in others] == [None, None, None]

    def test_of_those_that_are_named_no_other_is_asked(self, tmp_path: Path, start: Any) -> None:
        one, other = start(), start()
        self.signal(f"python -IS {tmp_path / 'rank.py'}", [one, other], other.pid)
        assert (other.wait(20), one.poll()) == (42, None)

    def test_a_number_that_now_belongs_to_another_process_is_left_alone(self, tmp_path: Path, start: Any) -> None:
        rank, another = start(), start("more")
        self.signal(f"python -IS {tmp_path / 'rank.py'}", [rank, another], another.pid, rank.pid)
        assert (rank.wait(20), another.poll()) == (42, None)

    def test_where_there_is_none_nothing_happens(self, tmp_path: Path) -> None:
        self.signal(f"python -IS {tmp_path / 'none.py'}", [])

    @pytest.mark.parametrize("changed", [{}, {"site": "/opt/conda/lib/site-packages"}])
    def test_ranks_are_started_by_that_command(self, changed: dict[str, str]) -> None:
        words = cluster_plan(1, **changed).nodes[0].argv
        assert words[words.index("--no-python") + 1 :] == words[-RANK_WORDS:]


def test_terminating_asks_the_agent_too(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    one.node.ranks[0] = 70
    one.node.terminate()
    until(lambda: one.calls("kill"))
    assert [words[-2:] for words in one.calls("exec")] == [("-15", _RANK_COMMAND)]
    one.node.kill()
    until(lambda: len(one.calls("kill")) == 2)
    assert [words[2] for words in one.calls("kill")] == ["15", "9"]


def test_a_node_out_of_reach_holds_up_nobody_who_signals(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    one.node.ranks[0] = 70
    one.remote.cut = one.engine.connected = True
    one.node.signal_ranks(signal.SIGTERM)
    one.node.kill()
    assert one.calls("kill") == []


V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\ncache 0\nhierarchical_memory_limit {}\n"
V2 = "low 0\nhigh 0\nmax 5\noom 1\noom_kill {}\noom_group_kill 0\n{}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V1.format(1, 536870912), (1, 536870912)),
        (V1.format(0, 9223372036854771712), (0, 0)),
        (V2.format(2, 536870912), (2, 536870912)),
        (V2.format(0, "max"), (0, 0)),
        ("", (0, 0)),
    ],
)
def test_memory_of_both_cgroup_versions(text: str, expected: tuple[int, int]) -> None:
    assert _memory(text) == expected


def test_a_rank_for_which_memory_ran_out_is_told_of_by_node_and_limit(nodes: list[DockerNode]) -> None:
    one = Followed(nodes, plan=cluster_plan(2).nodes[1])
    one.engine.printed = [V2.format(1, 536870912).encode(), V2.format(0, "max").encode()]
    assert one.node.out_of_memory() == "node2 (limit 512 MiB)"
    assert one.node.out_of_memory() is None


def test_a_container_that_has_ended_still_tells_that_memory_ran_out(nodes: list[DockerNode]) -> None:
    one = Followed(nodes)
    one.engine.refuses["exec"] = refusal(409)
    state = one.engine.inspected[one.container]
    assert one.node.out_of_memory() is None
    one.engine.refuses["exec"] = requests.ConnectionError("it ended meanwhile")
    state["State"]["OOMKilled"] = True
    assert one.node.out_of_memory() == "node1"
    state["HostConfig"]["Memory"] = 1 << 30
    assert one.node.out_of_memory() == "node1 (limit 1024 MiB)"
    one.engine.inspected.clear()
    assert one.node.out_of_memory() is None


@pytest.mark.parametrize(
    ("port", "listening", "expected"),
    [
        (0x733C, False, True),
        (0x733C, True, True),
        (0x743C, False, True),  # we are at the other end
        (0x743C, True, False),
        (0x9C40, False, True),
        (0x753C, False, False),  # TIME_WAIT
        (0x1234, False, False),
    ],
)
def test_the_kernels_table(port: int, listening: bool, expected: bool) -> None:
    assert has_socket(TCP, port, listening=listening) is expected
    assert not has_socket("", port)


@pytest.mark.skipif(sys.platform != "linux" or not socket.has_ipv6, reason="the tables are Linux's")
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")])
def test_the_tables_of_this_machine(family: socket.AddressFamily, address: str) -> None:
    """torch listens on an IPv6 address, and is reached at an IPv4 address."""

    def table() -> str:
        return subprocess.run(SOCKETS, check=True, capture_output=True, text=True).stdout

    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert not has_socket(table(), port)
        listener.listen()
        assert has_socket(table(), port, listening=True)
        with socket.create_connection(("127.0.0.1", port)) as end:
            ours = end.getsockname()[1]
            assert has_socket(table(), ours) and not has_socket(table(), ours, listening=True)


def test_errors_of_the_sdk_are_trouble() -> None:
    assert issubclass(APIError, Trouble) and issubclass(NotFound, Trouble)
