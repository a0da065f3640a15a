"""The flags of Fabric's tasks, from the list that also gives make its variables: options.txt."""

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path

from fabric import task

OPTIONS = Path(__file__).with_name("options.txt")


def flags_of(target: str, path: Path = OPTIONS) -> dict[str, str]:
    """Return the flags of `target` with their help, in the list's order; `--name` where a flag takes no value."""
    flags: dict[str, str] = {}
    listed = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            listed = target in line[1 : line.index("]")].split()
        elif listed and line and not line.startswith("#"):
            name, _, text = line.partition(" ")
            flags[name.removesuffix("*").lower()] = text.strip()
    return flags


def with_flags(body: Callable[..., None]) -> Callable[..., None]:
    """Make `body` a Fabric task that takes the flags of the target of its name.

    Fabric derives a task's flags from the parameters of its function. Here they come from the list instead, and `body`
    receives them by name: texts, which are empty where the user gave none, and booleans for flags without a value.
    """
    flags = flags_of(body.__name__.replace("_", "-"))
    parameters = [Parameter("connection", Parameter.POSITIONAL_ONLY)]
    for name in flags:
        default: str | bool = False if name.startswith("--") else ""
        parameters.append(Parameter(name.removeprefix("--"), Parameter.POSITIONAL_OR_KEYWORD, default=default))
    body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    decorated: Callable[..., None] = task(help={name.removeprefix("--"): text for name, text in flags.items()})(body)
    return decorated
