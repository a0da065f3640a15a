"""The image's relays as a whole, on a clock of their own: who asks whom when nodes fail, and how soon all give up."""

from dataclasses import dataclass, field

import pytest
from ansible.module_utils.ringmaster.image.relay import GIVE_UP_S, SILENCE_S, STALLED_S, Search
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 40
"""Bytes of the blob; a second takes one over each link."""
SSH_SILENT_S, SSH_CONNECT_S = 15, 10
"""As the relay's options of ssh say."""
PAUSE_S = 2


@dataclass
class Link:
    """A node. It dies (nothing answers), hangs (it answers nothing any more) or ends (it refuses at once)."""

    place: int
    before: "list[Link]"
    unreachable: set[int] = field(default_factory=set)
    """Places that this node can't log in at."""
    fate: str = ""
    fails_at: int = 1 << 30
    have: int = 0
    last_byte: int = 0
    given_up_at: int | None = None
    moves: int = 0
    current: int = 0
    busy_until: int = 0
    pending: bool = False
    source: "int | None" = None
    silent_since: int = 0

    def __post_init__(self) -> None:
        self.search = Search(len(self.before), 0) if self.before else None

    def failed(self, now: int) -> bool:
        return now >= self.fails_at

    def ended(self) -> bool:
        return self.have == SIZE or self.given_up_at is not None

    def step(self, now: int) -> None:
        """Do what a second allows; a refusal takes no time."""
        if self.search is None or self.failed(now):
            return
        received = False
        while not (received or self.ended() or now < self.busy_until):
            if self.pending:  # a try has ended in vain
                self.lose(now)
            elif self.source is None:
                self.ask(now)
            else:
                received = True
                self.receive(now)

    def ask(self, now: int) -> None:
        assert self.search is not None
        place = self.search.following(self.current, now)
        if place is None:
            self.given_up_at = now
            return
        other = self.before[place]
        self.source, self.silent_since = place, now
        if other.failed(now):
            self.doom(now, {"dies": SSH_CONNECT_S, "hangs": int(SILENCE_S), "ends": 0}[other.fate])
        else:
            stalled = self.have >= other.have < SIZE and now - other.last_byte >= STALLED_S
            if stalled or other.place in self.unreachable or other.given_up_at is not None:
                self.doom(now, 0)

    def receive(self, now: int) -> None:
        assert self.search is not None and self.source is not None
        other = self.before[self.source]
        if other.failed(now):
            self.doom(now, {"dies": SSH_SILENT_S, "hangs": int(SILENCE_S), "ends": 0}[other.fate])
        elif other.have > self.have:
            self.have += 1
            self.last_byte = self.silent_since = now
            self.search.arrived(now)
        elif other.given_up_at is not None or now - self.silent_since >= SILENCE_S:
            self.doom(now, 0)

    def doom(self, now: int, seconds: int) -> None:
        self.pending, self.busy_until = True, now + seconds

    def lose(self, now: int) -> None:
        assert self.search is not None and self.source is not None
        if self.source == self.current:
            self.current = (self.current + 1) % len(self.before)
            self.moves += 1
        if self.search.failed(self.source):
            self.busy_until = now + PAUSE_S
        self.source, self.pending = None, False


def chain(length: int) -> list[Link]:
    nodes: list[Link] = []
    for place in range(length):
        nodes.append(Link(place, nodes[::-1]))
    nodes[0].have = SIZE
    return nodes


def run(nodes: list[Link]) -> None:
    for now in range(2000):
        for node in nodes[::-1]:  # a byte takes a second over each link
            node.step(now)
        if all(node.ended() or node.failed(now) for node in nodes):
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("length", [2, 3, 8, 24])
@pytest.mark.parametrize(("fate", "patience"), [("ends", 0), ("dies", SSH_SILENT_S), ("hangs", SILENCE_S)])
def test_without_the_first_node_all_give_up_as_soon_however_many_they_are(
    length: int, fate: str, patience: float
) -> None:
    nodes = chain(length)
    nodes[0].fate, nodes[0].fails_at = fate, length + 5
    run(nodes)
    ends = [node.given_up_at - node.last_byte for node in nodes[1:] if node.given_up_at is not None]
    assert len(ends) == length - 1
    assert max(ends) <= GIVE_UP_S + 2 * SSH_CONNECT_S + 2 * patience


@given(length=st.integers(3, 24), fate=st.sampled_from(["ends", "dies"]), data=st.data())
def test_of_a_node_in_the_middle_only_the_next_one_takes_notice(length: int, fate: str, data: st.DataObject) -> None:
    nodes = chain(length)
    middle = nodes[data.draw(st.integers(1, length - 2))]
    middle.fate, middle.fails_at = fate, data.draw(st.integers(0, length + SIZE))
    run(nodes)
    assert all(node.have == SIZE for node in nodes if node is not middle)
    assert {node.place for node in nodes if node.moves} <= {middle.place + 1}


failures = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from(["ends", "dies", "hangs"]), st.integers(0, 150)), max_size=8
)
separations = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20)


@settings(max_examples=300)
@given(length=st.integers(2, 12), failed=failures, separated=separations)
def test_whatever_fails_all_end_and_who_reaches_the_first_node_has_everything(
    length: int, failed: list[tuple[int, str, int]], separated: list[tuple[int, int]]
) -> None:
    nodes = chain(length)
    for place, fate, moment in failed:
        if place < length:
            nodes[place].fate, nodes[place].fails_at = fate, moment
    for one, other in separated:
        if one < length:
            nodes[one].unreachable.add(other)
    run(nodes)
    broken = len(failed)
    for node in nodes[1:]:
        if node.given_up_at is not None:
            assert nodes[0].fate or 0 in node.unreachable
            # Each node that answers nothing costs the one that tries it its own patience, and no one else's is added.
            assert node.given_up_at - node.last_byte <= GIVE_UP_S + SILENCE_S * (2 * broken + 2)
        else:
            assert node.have == SIZE or node.fate
