"""The published data set on every node: one node that has it, or can fetch it, is enough for all.

A node that lacks it receives it from another one over the cluster network, file by file, and stores it as if it had
fetched it, so nodes without internet access train too. Nodes that share a data folder find what one of them put there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.data.published import fetch
from trainer.data.published.catalog import CATALOG
from trainer.data.published.download import PROGRESS_S, Say
from trainer.data.published.store import Content, read, verified_files
from trainer.distributed.world import LONG_WAIT, World
from trainer.errors import UserError

PIECE_BYTES = 4 << 20
"""Sent at once: enough to fill the line, and little enough to report progress on a slow one."""


@dataclass(frozen=True, kw_only=True)
class NodeCopy:
    """What the first rank of a node finds in its data folder."""

    node: str
    has: bool
    published: bool = True


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """What precedes a file's bytes."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class _Distribution:
    """The data set that every node gets, and the ranks that take part."""

    name: str
    root: Path
    """The data folder of this rank's node."""
    world: World
    group: Any
    """All ranks; may wait as long as a download takes."""
    say: Say

    def copies(self) -> dict[int, NodeCopy]:
        """Return what each node has, by the rank that acts for it, in order; a collective."""
        mine = None
        if self.world.local_rank == 0:
            node = os.environ.get("RINGMASTER_NODE") or f"node {os.environ.get('GROUP_RANK', '0')}"
            stored = read(self.root, self.name)
            mine = NodeCopy(node=node, has=stored is not None, published=stored is None or stored.published)
        return {rank: copy for rank, copy in enumerate(self.world.gather(mine, self.group)) if copy}

    def fetch_somewhere(self, copies: Mapping[int, NodeCopy]) -> int:
        """Let one node after the other try until one has fetched it; return the rank that acts for that node."""
        nothing: UserError | None = None
        waiting = list(copies)
        for rank in copies:
            waiting.remove(rank)
            got, fault = False, None
            if rank == self.world.rank:
                try:
                    fetch.ensure(self.name, data_dir=self.root, own_copy=None, say=self.say)
                    got = True
                except fetch.NoSourceError as error:
                    nothing = error
                    if waiting:
                        self.say(f"{self.name}: {copies[rank].node} can't get it; {copies[waiting[0]].node} tries now")
                except UserError as error:  # a fault of this node's own, which no other node can fix
                    fault = error
            self.world.settle(fault, self.group)
            if any(self.world.gather(got, self.group)):
                return rank
        self.world.settle(nothing if self.world.is_main else None, self.group)
        raise AssertionError("rank 0 acts for the first node, so it has tried, and said why")

    def hand_out(self, copies: Mapping[int, NodeCopy], source: int, lacking: list[int]) -> None:
        """Send it from the node of rank `source` to those of the ranks `lacking`."""
        # Only these ranks, so that each node gets the files once; but every rank has to take part in making the group.
        line: Any = dist.new_group([source, *lacking], backend="gloo", timeout=LONG_WAIT)
        giver, fault = copies[source], None
        try:
            if self.world.rank == source:
                self.say(
                    f"{self.name}: sending it from {giver.node} to {', '.join(copies[each].node for each in lacking)}"
                )
                self._send(source, line)
            elif self.world.rank in lacking:
                contents = self._receive(giver.node, source, line)
                if contents is not None:
                    fetch.accept(self.name, contents, data_dir=self.root, published=giver.published, say=self.say)
                    self.say(f"{self.name}: {sum(map(len, contents.values())) / 1e6:.0f} MB came from {giver.node}")
        except UserError as error:
            fault = error
        self.world.settle(fault, self.group)
        if self.world.rank in (source, *lacking):
            dist.destroy_process_group(line)

    def _send(self, source: int, line: Any) -> None:
        """Send each file after its announcement; an announcement of None means that nothing more comes."""
        sent, reported = 0, time.monotonic()
        for content in self._files():
            if isinstance(content, UserError):
                _announce(None, source, line)
                raise content
            _announce(Announcement(size=len(content), sha256=hashlib.sha256(content.data).hexdigest()), source, line)
            for piece in torch.split(torch.from_numpy(content), PIECE_BYTES):
                dist.broadcast(piece, src=source, group=line)
                sent += len(piece)
                if time.monotonic() - reported > PROGRESS_S:
                    reported = time.monotonic()
                    self.say(f"{self.name}: {sent / 1e6:.0f} MB sent")

    def _files(self) -> Iterator[Content | UserError]:
        try:
            for _, content in verified_files(self.root, self.name):
                yield content
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield UserError(f"{self.root}: {self.name} changed while it was sent ({error}); run again", exit_code=2)

    def _receive(self, giver: str, source: int, line: Any) -> dict[str, Content] | None:
        """Return the files, verified; None if the sender has given up, and says why itself."""
        contents: dict[str, Content] = {}
        damaged = []
        for file in CATALOG[self.name].files:
            announcement = _announce(None, source, line)
            if announcement is None:
                return None
            received = torch.empty(announcement.size, dtype=torch.uint8)
            for piece in torch.split(received, PIECE_BYTES):
                dist.broadcast(piece, src=source, group=line)
            contents[file] = received.numpy()
            if hashlib.sha256(contents[file].data).hexdigest() != announcement.sha256:
                damaged.append(file)  # raised at the end: the others count on this rank in every broadcast
        if damaged:
            raise UserError(f"{self.name}: {', '.join(damaged)} arrived damaged from {giver}; run again", exit_code=2)
        return contents


def bring_everywhere(name: str, *, data_dir: Path, world: World, say: Say) -> None:
    """Make the data set ready in every node's data folder; a collective. `say` gets lines about this node only.

    Raises:
        UserError: exit code 2, if no node can get it (on rank 0 only), or this one can't store it.
        SystemExit: with the code of the UserError that another rank raises.
    """
    with world.patient_group() as group:
        distribution = _Distribution(name=name, root=data_dir.absolute(), world=world, group=group, say=say)
        copies = distribution.copies()
        source = next((rank for rank, copy in copies.items() if copy.has), None)
        if source is None:
            source = distribution.fetch_somewhere(copies)
            copies = distribution.copies()  # nodes that share that node's folder have it now, too
        lacking = [rank for rank, copy in copies.items() if not copy.has and rank != source]
        if lacking:
            distribution.hand_out(copies, source, lacking)


def _announce(announcement: Announcement | None, source: int, line: Any) -> Announcement | None:
    """Return the sender's announcement, on every node of the line."""
    box = [announcement]
    dist.broadcast_object_list(box, src=source, group=line)
    return box[0]
