"""Brings the image to a job's nodes where one lacks it: `make train` says so, builds what is missing, delivers it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.base import timings
from launcher.base.errors import BY_SIGNAL, ExitCode, RingmasterError
from launcher.base.paths import SYSTEMS_ENGINE
from launcher.image import record as image_record
from launcher.image.build import can_renew, make_image, renew_image
from launcher.image.content import trainer_hash
from launcher.image.labels import TRAINER, ImageFacts
from launcher.inventory.hosts import Host
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import open_all

_ASK_S = 15.0
Say = Callable[[str], None]
Deliver = Callable[[Sequence[str]], int]
"""Provisions the image alone on the nodes with these names; returns an exit code."""


@dataclass(frozen=True, kw_only=True)
class Brought:
    """The image that the job runs."""

    reference: str
    assumed: ImageFacts | None = None
    """In a dry run, what nodes without it would have."""


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
        dry_run: bool = False,
    ) -> None:
        """Args:
        record: where the image is recorded.
        pins: the inventory's known_hosts.
        named: whether the inventory itself names the image, so that none is built.
        everyone: reads all hosts of the inventory: another than the job's may have the image.
        dry_run: only say what would be done.
        """
        self._record, self._pins, self._named, self._everyone = record, pins, named, everyone
        self._deliver, self._say, self._dry_run = deliver, say, dry_run

    def bring(
        self, reference: str, images: Mapping[str, ImageFacts | None], remotes: Mapping[str, Remote], *, cuda: str
    ) -> Brought | None:
        """Build what is missing, and deliver it; return the image that the nodes have then, None if it is the same.

        Args:
            reference: the image that is recorded or named; empty if there is none.
            images: as each node's engine has it, by node, in the job's order.
            cuda: the CUDA version that a new image is built for; empty: the newest.

        Raises:
            RingmasterError: it can't be done, or was stopped; no job was started.
        """
        present = next((image for image in images.values() if image), None)
        lacking = [name for name, image in images.items() if image is None]
        if present is None and not self._named:
            return self._provide(reference, list(images), remotes, cuda)
        if present and not self._named and present.labels.get(TRAINER, trainer_hash()) != trainer_hash():
            builder = next((name for name in images if can_renew(remotes[name], present.labels)), None)
            if builder:
                return self._renew(reference, remotes[builder], present, list(images))
        if not lacking:
            return None
        who = ", ".join(lacking)
        self._announce(f"{who}: the image is not there", f"deliver it to {who}")
        self._bring_to(list(images))
        return self._after(reference, present)

    def _provide(self, reference: str, names: list[str], remotes: Mapping[str, Remote], cuda: str) -> Brought:
        """Have an image that no node of the job has: from another node, else a new one."""
        head, who = remotes[names[0]], ", ".join(names)
        holder = self._holder(reference, names) if reference else ""
        if holder:
            self._announce("none of these nodes has the image", f"deliver it to {who} from {holder}")
            self._bring_to([*names, holder])
            return self._after(reference, None)
        wanted = image_record.wanted_again(self._record)
        wanted = wanted if wanted.cuda or wanted.base else replace(wanted, cuda=cuda)
        what = "none of these nodes has the image that is recorded" if reference else "no image is recorded"
        line = f" for CUDA {wanted.cuda}, which these drivers know" if cuda and wanted.cuda == cuda else ""
        self._announce(what, f"build one{line} on {head.name}, and deliver it to {who}")
        if self._dry_run:
            return Brought(reference="", assumed=_assumed(""))
        image = make_image(head, self._record, wanted, self._say)
        self._bring_to(names)
        return Brought(reference=image.id)

    def _renew(self, reference: str, builder: Remote, present: ImageFacts, names: list[str]) -> Brought:
        """Have an older image of ours with the present trainer on top."""
        what = "the image has another trainer than this checkout"
        self._announce(what, f"put this one in on {builder.name}, and deliver it to {', '.join(names)}")
        if self._dry_run:
            renewed = replace(present, labels={**present.labels, TRAINER: trainer_hash()})
            return Brought(reference=reference, assumed=renewed)
        image = renew_image(builder, self._record, present.labels, self._say)
        self._bring_to(names)
        return Brought(reference=image.id)

    def _after(self, reference: str, present: ImageFacts | None) -> Brought:
        """Return the image once it was delivered, or would have been."""
        return Brought(reference=reference, assumed=(present or _assumed(reference)) if self._dry_run else None)

    def _holder(self, reference: str, names: Sequence[str]) -> str:
        """Return another node of the inventory that has the image; empty if none that answers has it."""
        others = [host for host in self._everyone() if host.name not in names and host.ssh.over_ssh]
        opened, _ = open_all(others, self._pins) if others else ({}, {})
        try:
            words = ("docker", "-H", SYSTEMS_ENGINE, "image", "inspect", "--format", "{{.Id}}", reference)
            return next((name for name, remote in opened.items() if _succeeds(remote, words)), "")
        finally:
            for remote in opened.values():
                remote.close()

    def _announce(self, what: str, does: str) -> None:
        self._say(f"{what}: make train would {does}" if self._dry_run else f"{what}: first, {does}")

    def _bring_to(self, names: Sequence[str]) -> None:
        if self._dry_run:
            return
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


def _succeeds(remote: Remote, words: Sequence[str]) -> bool:
    """Return whether a program ends well on a node; one that isn't the job's must not end the job."""
    try:
        return remote.run(words, limit_s=_ASK_S).code == 0
    except Trouble:
        return False


def _assumed(reference: str) -> ImageFacts:
    """Return what a dry run takes for the image that nobody has yet."""
    name = reference or "IMAGE-TO-BE-BUILT"
    return ImageFacts(id=name, architecture="", labels={TRAINER: trainer_hash()})
