"""The published data set on every node: one node that has it, or can fetch it, is enough for all.

What a node lacks it gets from another one over the cluster network, file by file, and stores it as if it had fetched
it; so nodes without internet train too. Nodes that share a data folder find there what one of them has put into it.
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
from trainer.data.published.formats import FORMATS
from trainer.data.published.sources import PROGRESS_S, Say
from trainer.data.published.store import Content, read, verified_files
from trainer.distributed.world import LONG_WAIT, World
from trainer.errors import UserError

PIECE_BYTES = 4 << 20
"""Sent at once: enough for the line to be full, little enough to tell how far it is on a slow one."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the first rank of a node finds in its data folder."""

    node: str
    has: bool
    published: bool = True


@dataclass(frozen=True, kw_only=True)
class Announced:
    """What precedes a file's bytes."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What is to be everywhere, and who takes part."""

    name: str
    root: Path
    """The data folder of this rank's node."""
    world: World
    group: Any
    """All ranks; may wait as long as a download takes."""
    say: Say

    def look_around(self) -> dict[int, Look]:
        """What each node has, by the rank that acts for it, in order."""
        mine = None
        if self.world.local_rank == 0:
            node = os.environ.get("RINGMASTER_NODE") or f"node {os.environ.get('GROUP_RANK', '0')}"
            stored = read(self.root, self.name)
            mine = Look(node=node, has=stored is not None, published=stored is None or stored.published)
        return {rank: look for rank, look in enumerate(self.world.gather(mine, self.group)) if look}

    def fetch_somewhere(self, looks: Mapping[int, Look]) -> int:
        """Lets one node after the other try until one has fetched it; returns the rank that acts for that node."""
        nothing: UserError | None = None
        waiting = list(looks)
        for rank in looks:
            waiting.remove(rank)
            got, fault = False, None
            if rank == self.world.rank:
                try:
                    fetch.ensure(self.name, data_dir=self.root, own_copy=None, say=self.say)
                    got = True
                except fetch.NoSourceError as error:
                    nothing = error
                    if waiting:
                        self.say(f"{self.name}: {looks[rank].node} can't get it; {looks[waiting[0]].node} tries now")
                except UserError as error:  # a fault of this node's own, which no other node mends
                    fault = error
            self.world.settle(fault, self.group)
            if any(self.world.gather(got, self.group)):
                return rank
        self.world.settle(nothing if self.world.is_main else None, self.group)
        raise AssertionError("rank 0 acts for the first node, so it has tried, and told why")

    def hand_out(self, looks: Mapping[int, Look], source: int, lacking: list[int]) -> None:
        """Sends it from the node of rank `source` to those of the ranks `lacking`."""
        # Of these ranks alone, so that each node gets the files once; but every rank has to take part in making it.
        line: Any = dist.new_group([source, *lacking], backend="gloo", timeout=LONG_WAIT)
        giver, fault = looks[source], None
        try:
            if self.world.rank == source:
                self.say(
                    f"{self.name}: sending it from {giver.node} to {', '.join(looks[each].node for each in lacking)}"
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
        """Sends each file after its announcement; an announcement of None says that nothing more comes."""
        sent, spoken = 0, time.monotonic()
        for content in self._files():
            if isinstance(content, UserError):
                _announce(None, source, line)
                raise content
            _announce(Announced(size=len(content), sha256=hashlib.sha256(content.data).hexdigest()), source, line)
            for piece in torch.split(torch.from_numpy(content), PIECE_BYTES):
                dist.broadcast(piece, src=source, group=line)
                sent += len(piece)
                if time.monotonic() - spoken > PROGRESS_S:
                    spoken = time.monotonic()
                    self.say(f"{self.name}: {sent / 1e6:.0f} MB sent")

    def _files(self) -> Iterator[Content | UserError]:
        try:
            for _, content in verified_files(self.root, self.name):
                yield content
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield UserError(f"{self.root}: {self.name} changed while it was sent ({error}); run again", exit_code=2)

    def _receive(self, giver: str, source: int, line: Any) -> dict[str, Content] | None:
        """The files, verified; None where the sender has given up, and says why."""
        contents: dict[str, Content] = {}
        damaged = []
        for file in FORMATS[self.name].files:
            announced = _announce(None, source, line)
            if announced is None:
                return None
            received = torch.empty(announced.size, dtype=torch.uint8)
            for piece in torch.split(received, PIECE_BYTES):
                dist.broadcast(piece, src=source, group=line)
            contents[file] = received.numpy()
            if hashlib.sha256(contents[file].data).hexdigest() != announced.sha256:
                damaged.append(file)  # told when all has come: the others count on this rank in every broadcast
        if damaged:
            raise UserError(f"{self.name}: {', '.join(damaged)} came damaged from {giver}; run again", exit_code=2)
        return contents


def bring_everywhere(name: str, *, data_dir: Path, world: World, say: Say) -> None:
    """Makes the data set ready in every node's data folder; a collective. What `say` prints is about its own node.

    Raises:
        UserError: exit code 2, where no node can get it (on rank 0 alone), or this one can't store it.
        SystemExit: with the code of the UserError that another rank raises.
    """
    with world.patient_group() as group:
        wanted = _Wanted(name=name, root=data_dir.absolute(), world=world, group=group, say=say)
        looks = wanted.look_around()
        source = next((rank for rank, look in looks.items() if look.has), None)
        if source is None:
            source = wanted.fetch_somewhere(looks)
            looks = wanted.look_around()  # those who share that node's folder have it now, too
        lacking = [rank for rank, look in looks.items() if not look.has and rank != source]
        if lacking:
            wanted.hand_out(looks, source, lacking)


def _announce(announced: Announced | None, source: int, line: Any) -> Announced | None:
    """What the sender announces, on every node of the line."""
    box = [announced]
    dist.broadcast_object_list(box, src=source, group=line)
    return box[0]
