"""The threads that watch a node: what they can't make sense of is heard, and the node's clock is read."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.engine import node as docker_node
from launcher.cluster.engine.node import DockerNode, clock_ahead
from launcher.inventory.hosts import Host
from tests.support.cluster.engine import refusal, stamp
from tests.support.cluster.followed_node import Followed
from tests.support.cluster.live_engine import FakeRemote, LiveEngine, until
from tests.support.plans import cluster_plan


class TestWhatNobodyElseWouldHear:
    """An error in a thread that watches a node: it is watched on, or is lost in words; the thread never just ends."""

    TORN = b"Error grabbing logs: unexpected EOF\n"

    def test_a_torn_log_does_not_end_the_following(self, nodes: list[DockerNode]) -> None:
        torn = self.TORN

        class Torn(LiveEngine):
            asked = 0

            def logs(self, container: str, *, tail: int | str, follow: bool, **how: Any) -> Iterator[bytes]:
                self.asked += 1
                if tail == 1 or (isinstance(tail, int) and tail <= len(self.lines) - 1):
                    yield from super().logs(container, tail=tail, follow=False, **how)
                    return
                yield f"{stamp(0)} ".encode() + self.lines[0] + b"\n"
                yield torn

        one = Followed(nodes, "a", engine=Torn())
        until(lambda: one.engine.asked > 3)  # type: ignore[attr-defined]
        one.engine.lines += [b"b", b"c"]
        one.engine.end(3)
        assert one.rest() == b"a\n" + torn + b"b\nc\n"
        assert (one.node.poll(), one.node.lost, one.node.incomplete) == (3, None, "it is torn")
        (news,) = one.node.news
        assert news.startswith("node1: the engine can't give its whole log (it is torn)")

    @pytest.mark.parametrize("error", [ValueError("no stamp"), MemoryError(), refusal(501, "driver can't read")])
    def test_a_log_that_can_not_be_read_leaves_the_end_to_be_learned(
        self, nodes: list[DockerNode], error: Exception
    ) -> None:
        class Unreadable(LiveEngine):
            asked = 0

            def logs(self, *_: Any, **__: Any) -> Iterator[bytes]:
                self.asked += 1
                raise error

        one = Followed(nodes, engine=Unreadable())
        until(lambda: one.engine.asked > 3)  # type: ignore[attr-defined]
        assert one.node.poll() is None, "it runs"
        one.engine.end(1)
        assert one.rest() == b""
        assert (one.node.poll(), one.node.lost, len(one.node.news)) == (1, None, 1)

    def test_who_can_not_be_asked_how_it_ended_is_lost_in_words(self, nodes: list[DockerNode]) -> None:
        class Strange(LiveEngine):
            def inspect_container(self, container: str) -> Any:
                raise KeyError("State")

        one = Followed(nodes, engine=Strange())
        assert one.rest() == b""
        assert one.node.lost == "its engine's answers make no sense ('State')"
        assert one.node.poll() is None, "nobody knows how it ended"

    def test_an_engine_that_is_restarted_is_waited_for(self, nodes: list[DockerNode]) -> None:
        class Restarted(LiveEngine):
            asked = 0

            def inspect_container(self, container: str) -> Any:
                self.asked += 1
                if self.asked < 10:
                    raise refusal(500, "starting")
                return super().inspect_container(container)

        one = Followed(nodes, "a", engine=Restarted())
        one.engine.end(0)
        assert one.rest() == b"a\n"
        assert (one.node.poll(), one.node.lost) == (0, None)

    def test_a_table_that_makes_no_sense_is_asked_for_again(
        self, nodes: list[DockerNode], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        def has_socket_once(table: str, port: int) -> bool:
            asked.append(table)
            if len(asked) == 1:
                raise ValueError("banner")
            return True

        monkeypatch.setattr(docker_node, "has_socket", has_socket_once)
        one = Followed(nodes)
        until(one.node.joined)
        assert list(one.node.news) == ["node1: can't be asked how it is (banner); trying again"]

    def test_whatever_keeps_us_from_connecting_again_another_time_it_may_go(
        self, nodes: list[DockerNode], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries: list[Host] = []

        def open_all(hosts: Sequence[Host], pins: Path) -> tuple[dict[str, Any], dict[str, Any]]:
            tries.extend(hosts)
            if len(tries) == 1:
                raise OSError(24, "Too many open files")
            one.engine.connected = True
            return {"node1": FakeRemote(one.engine)}, {}

        monkeypatch.setattr(docker_node, "open_all", open_all)
        one = Followed(nodes, "a")
        assert one.node.read()
        one.engine.connected, one.remote.cut = False, True
        until(lambda: one.node.remote is not one.remote)
        one.engine.end(0)
        one.rest()
        assert one.node.poll() == 0


def test_it_knocks_less_and_less_often_where_nobody_lets_us_in(
    nodes: list[DockerNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that counts connections (`ufw limit`) would shut us out for as long as we come more often."""
    monkeypatch.setattr(docker_node, "_AGAIN_S", 0.001)
    monkeypatch.setattr(docker_node, "_LONGEST_AGAIN_S", 0.004)
    monkeypatch.setattr(docker_node, "open_all", lambda hosts, pins: ({}, {"node1": "refused"}))
    pauses: list[float] = []

    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout in {0.001, 0.002, 0.004}:  # not those of others who wait
                pauses.append(timeout)
            return super().wait(timeout)

    one = Followed(nodes, "a")
    assert one.node.read()
    one.node._let_go = Noted()
    one.engine.connected, one.remote.cut = False, True
    until(lambda: pauses.count(0.004) > 2)
    assert pauses[:5] == [0.001, 0.002, 0.004, 0.004, 0.004]
    one.engine.connected, one.remote.cut = True, False
    one.engine.end(0)


class TestItsClock:
    def test_it_is_known_before_anything_is_passed_on(self, nodes: list[DockerNode]) -> None:
        """A job that has ended is told all at once: its times mean nothing until then."""

        class SlowlyTold(FakeRemote):
            def run(self, words: Sequence[str], *, limit_s: float) -> Any:
                time.sleep(0.3)
                self.clock_s = 3600.0
                return super().run(words, limit_s=limit_s)

        engine = LiveEngine()
        remote, job = SlowlyTold(engine), engine.run("a")
        engine.end(1)
        node = DockerNode(cluster_plan(1).nodes[0], remote, job, 29500, Path("/pins"))  # type: ignore[arg-type]
        nodes.append(node)
        assert node.read() == b"a\n"
        assert 3590 < node.clock_s < 3610

    def test_how_far_it_is_ahead_is_measured(self, nodes: list[DockerNode]) -> None:
        class Ahead(FakeRemote):
            def run(self, words: Sequence[str], *, limit_s: float) -> Any:
                self.clock_s = 3600.0
                return super().run(words, limit_s=limit_s)

        engine = LiveEngine()
        node = DockerNode(cluster_plan(1).nodes[0], Ahead(engine), engine.run(), 29500, Path("/pins"))  # type: ignore[arg-type]
        nodes.append(node)
        until(lambda: node.clock_s)
        assert 3590 < node.clock_s < 3610

    @pytest.mark.parametrize(
        ("answer", "ahead"),
        [("1030.5\n", 20.5), ("1000.25\n", -9.75), ("1030.%N\n", 7.0), ("1030\n", 7.0), ("", 7.0)],
    )
    def test_the_middle_of_question_and_answer_is_compared(self, answer: str, ahead: float) -> None:
        assert clock_ahead(answer, 1000.0, 1020.0, otherwise=7.0) == ahead
