"""The values that markers of requirements (`; python_version < "3.12"`) have in an image. Pure."""

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def environment(architecture: str, python: str) -> dict[str, str]:
    """Return an image's values: this machine's may differ.

    Args:
        architecture: in the engine's words: amd64, arm64.
        python: the version of its Python; empty: not known.
    """
    values = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": _MACHINES.get(architecture, architecture),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    if python:
        values |= {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    return values
