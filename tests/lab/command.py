"""Runs a command in a container."""

from docker.models.containers import Container


def run(container: Container, *command: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Return its exit status and what it printed, both streams together."""
    done = container.exec_run(list(command), environment=environment)
    output = done.output if isinstance(done.output, bytes) else b"".join(done.output)
    return int(done.exit_code or 0), output.decode(errors="replace")
