"""`make bench`: chooses the measurements."""

from benchmarks import first_step, image_delivery, provision
from launcher.errors import ExitCode, RingmasterError

_LAB = ("provision", "image-delivery")
"""These start container nodes, for which they need (or as root install) a Docker engine: only when asked for."""
_ALL = {"first-step": first_step.run, "provision": provision.run, "image-delivery": image_delivery.run}


def run(*, only: str = "", quick: bool = False) -> int:
    """Run the measurements that `only` names (commas between), or all that need no lab; `quick` repeats them less.

    Raises:
        RingmasterError: `only` names one that is not there, or a measured run failed.
    """
    names = [name.strip() for name in only.split(",")] if only else [name for name in _ALL if name not in _LAB]
    for name in names:
        if name not in _ALL:
            raise RingmasterError(f"ONLY={only}: there is no measurement '{name}'; there are: {', '.join(_ALL)}")
    for name in names:
        _ALL[name](3 if quick else 7)
    return ExitCode.SUCCEEDED
