"""Ways of doing the same, measured in turn, so that a noisy minute hits all of them."""

from collections.abc import Callable, Collection, Mapping

from benchmarks.result import figure
from launcher.base.errors import StoppedError


def in_turn(
    ways: Mapping[str, Callable[[], float]],
    repetitions: int,
    *,
    unit: str,
    fewer: Mapping[str, int] | None = None,
    optional: Collection[str] = (),
) -> dict[str, tuple[float, ...]]:
    """Measure A B C A B C …, with a line for each; return every way's values, which are in `unit`.

    Args:
        fewer: ways that are measured in this many of the first rounds only.
        optional: ways that may fail: the failure is printed, they have no values, and the others go on.
    """
    values: dict[str, tuple[float, ...]] = dict.fromkeys(ways, ())
    failed: set[str] = set()
    for number in range(repetitions):
        for name, measure in ways.items():
            if name in failed or number >= (fewer or {}).get(name, repetitions):
                continue
            try:
                value = measure()
            except StoppedError:
                raise
            except Exception as error:
                if name not in optional:
                    raise
                print(f"  {name} failed: {error}", flush=True)
                failed.add(name)
                values[name] = ()
                continue
            values[name] += (value,)
            print(f"  round {number + 1}/{repetitions}: {name}: {figure(value)} {unit}".rstrip(), flush=True)
    return values
