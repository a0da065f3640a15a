"""Brings the image to a job's nodes where one lacks it: `make train` says so, builds what is missing, delivers it.

First it only finds out what would be done, and what the nodes would have then, for the checks before a job. It is done
once nothing else refuses the job.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.base import timings
from launcher.base.errors import BY_SIGNAL, ExitCode, RingmasterError
from launcher.base.paths import SYSTEMS_ENGINE
from launcher.image import record as image_record
from launcher.image.build import can_renew, make_image, renew_image
from launcher.image.content import trainer_hash
from launcher.image.expected import TO_BE_BUILT, to_be_built
from launcher.image.labels import TRAINER, ImageFacts, from_engine
from launcher.inventory.hosts import Host
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import open_all

_ASK_S = 15.0
Say = Callable[[str], None]
Deliver = Callable[[Sequence[str]], int]
"""Provisions the image alone on the nodes with these names; returns an exit code."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """How the nodes of a job come to their image: nothing of it has been done yet."""

    what: str
    """What is missing."""
    does: str
    """What is done about it, as it ends a sentence that begins with `first,`."""
    warnings: tuple[str, ...] = ()
    reference: str
    """The image that the job runs then."""
    images: Mapping[str, ImageFacts]
    """The image that each node has then, as far as that is known."""
    nodes: tuple[str, ...]
    """The nodes that take part in the delivery."""
    build: Callable[[], str] | None = None
    """Builds the image and returns its ID; None: it is there."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a dry run says about it."""
        return (f"{self.what}: make train would {self.does}", *self.warnings)


class Supply:
    """What can be done for a job whose nodes lack an image."""

    def __init__(
        self,
        *,
        record: Path,
        pins: Path,
        named: bool,
        everyone: Callable[[], Sequence[Host]],
        deliver: Deliver,
        say: Say,
    ) -> None:
        """Args:
        record: where the image is recorded.
        pins: the inventory's known_hosts.
        named: whether the inventory itself names the image, so that none is built.
        everyone: reads all hosts of the inventory: another than the job's may have the image.
        """
        self._record, self._pins, self._named, self._everyone = record, pins, named, everyone
        self._deliver, self._say = deliver, say

    def find_remedy(
        self,
        reference: str,
        images: Mapping[str, ImageFacts | None],
        remotes: Mapping[str, Remote],
        *,
        architecture: str,
        cuda: str,
    ) -> Remedy | None:
        """Find out what is to be built and delivered; None: the nodes' images stay as they are. Change nothing.

        Args:
            reference: the image that is recorded or named; empty if there is none.
            images: as each node's engine has it, by node, in the job's order.
            architecture: the first node's, in the engine's words.
            cuda: the CUDA version that a new image is built for; empty: the newest.

        Raises:
            RingmasterError: the image that is missing can't be built again as it was.
        """
        present = next((image for image in images.values() if image), None)
        lacking = [name for name, image in images.items() if image is None]
        if present is None and not self._named:
            return self._provide(reference, list(images), remotes, architecture, cuda)
        if present and not self._named and present.labels.get(TRAINER, trainer_hash()) != trainer_hash():
            builder = next((name for name in images if can_renew(remotes[name], present.labels)), None)
            if builder:
                return self._renew(remotes[builder], present, list(images))
        if not lacking:
            return None
        coming = present or _unknown(reference)
        return Remedy(
            what=f"{', '.join(lacking)}: the image is not there",
            does=f"deliver it to {', '.join(lacking)}",
            reference=reference,
            images={name: image or coming for name, image in images.items()},
            nodes=tuple(images),
        )

    def bring(self, remedy: Remedy) -> str:
        """Do what `find_remedy` has found; return the image that the nodes have then.

        Raises:
            RingmasterError: it can't be done, or was stopped; no job was started.
        """
        for line in (f"{remedy.what}: first, {remedy.does}", *remedy.warnings):
            self._say(line)
        reference = remedy.build() if remedy.build else remedy.reference
        self._bring_to(remedy.nodes)
        return reference

    def _provide(
        self, reference: str, names: list[str], remotes: Mapping[str, Remote], architecture: str, cuda: str
    ) -> Remedy:
        """Have an image that no node of the job has: from another node, else a new one."""
        head, who = remotes[names[0]], ", ".join(names)
        holder, its_image = self._holder(reference, names) if reference else ("", None)
        if its_image:
            return Remedy(
                what="none of these nodes has the image",
                does=f"deliver it to {who} from {holder}",
                reference=reference,
                images=dict.fromkeys(names, its_image),
                nodes=(*names, holder),
            )
        wanted = image_record.wanted_again(self._record)
        wanted = wanted if wanted.cuda or wanted.base or wanted.torch else replace(wanted, cuda=cuda)
        line = f" for CUDA {wanted.cuda}, which these drivers know" if cuda and wanted.cuda == cuda else ""
        return Remedy(
            what="none of these nodes has the image that is recorded" if reference else "no image is recorded",
            does=f"build one{line} on {head.name}, and deliver it to {who}",
            warnings=tuple(filter(None, [image_record.forgotten(self._record)])),
            reference=TO_BE_BUILT,
            images=dict.fromkeys(names, to_be_built(wanted, architecture)),
            nodes=tuple(names),
            build=lambda: make_image(head, self._record, wanted, self._say).id,
        )

    def _renew(self, builder: Remote, present: ImageFacts, names: list[str]) -> Remedy:
        """Have an older image of ours with the present trainer on top."""
        labels = {**present.labels, TRAINER: trainer_hash()}
        renewed = ImageFacts(id=TO_BE_BUILT, architecture=present.architecture, labels=labels, expected=True)
        return Remedy(
            what="the image has another trainer than this checkout",
            does=f"put this one in on {builder.name}, and deliver it to {', '.join(names)}",
            reference=TO_BE_BUILT,
            images=dict.fromkeys(names, renewed),
            nodes=tuple(names),
            build=lambda: renew_image(builder, self._record, present.labels, self._say).id,
        )

    def _holder(self, reference: str, names: Sequence[str]) -> tuple[str, ImageFacts | None]:
        """Return another node of the inventory that has the image, and the image; None if none that answers has it."""
        others = [host for host in self._everyone() if host.name not in names and host.ssh.over_ssh]
        opened, _ = open_all(others, self._pins) if others else ({}, {})
        try:
            for name, remote in opened.items():
                if image := _asked_for(remote, reference):
                    return name, image
            return "", None
        finally:
            for remote in opened.values():
                remote.close()

    def _bring_to(self, names: Sequence[str]) -> None:
        code = self._deliver(names)
        timings.mark("image brought")
        if code in BY_SIGNAL:
            raise RingmasterError(
                "stopped while the image was delivered; the next make train goes on there", exit_code=ExitCode(code)
            )
        if code:
            raise RingmasterError(
                "the image was not delivered to every node of the job (see above); nothing was started",
                exit_code=ExitCode.NOT_STARTED,
            )


def _asked_for(remote: Remote, reference: str) -> ImageFacts | None:
    """Return an image that a node has; None also where it can't be asked: it isn't the job's, and must not end it."""
    try:
        done = remote.run(
            ("docker", "-H", SYSTEMS_ENGINE, "image", "inspect", "--format", "{{json .}}", reference), limit_s=_ASK_S
        )
        return None if done.code else replace(from_engine(json.loads(done.text)), expected=True)
    except Trouble:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):  # it is there all the same
        return _unknown(reference)


def _unknown(reference: str) -> ImageFacts:
    """Return an image of which nothing is known before it is there."""
    return ImageFacts(id=reference, architecture="", expected=True)
