"""One node that exists, and how to act on it without ssh, past its firewall."""

import json
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError
from docker.models.containers import Container
from requests.exceptions import RequestException

from lab.base import command
from lab.base.archive import Archive
from lab.base.place import NODE_LABEL, Place
from lab.nodes.files import File
from lab.nodes.spec import NodeSpec
from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

SPEC_FILE = "spec.json"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A lab node: its container, its spec, and the folder that it shares with this machine."""

    name: str
    spec: NodeSpec
    address: str
    folder: Path
    container: Container

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command in the node as root; return what it printed.

        Raises:
            RingmasterError: the node isn't running, or (with `check`) the command failed.
        """
        code, text = self.ask(*words)
        if check and code:
            last = (text.strip().splitlines() or ["no output"])[-1]
            raise RingmasterError(f"{self.name}: {' '.join(words)[:80]}: {last}", exit_code=ExitCode.CLUSTER)
        return text

    def succeeds(self, *words: str) -> bool:
        """Run a command in the node as root; return whether it succeeded.

        Raises:
            RingmasterError: the node isn't running.
        """
        return self.ask(*words)[0] == 0

    def place(self, files: dict[str, File]) -> None:
        """Put files into the node, running or not."""
        archive = Archive()
        for path, file in files.items():
            if "/.ssh/" in path:
                archive.add_folder(str(Path(path).parent), mode=0o700, owner=file.owner)
            archive.add(path, file.content, mode=file.mode, owner=file.owner)
        self.container.put_archive("/", archive.content())

    def read_settings(self) -> dict[str, str]:
        """Return what `start-node` reads at the node's next boot."""
        return read_settings(self.folder)

    def change_settings(self, **changed: object) -> None:
        """Change what `start-node` reads; this takes effect at the node's next boot."""
        values = {**self.read_settings(), **{key: str(value) for key, value in changed.items()}}
        atomic_file.write(self.folder / "settings", "".join(f"{key}={value}\n" for key, value in values.items()))

    @property
    def addresses(self) -> tuple[str, ...]:
        """One for each network card."""
        settings = self.read_settings()
        return tuple(filter(None, (settings["ADDRESS"], settings["SECOND_ADDRESS"])))

    def devices(self) -> list[str]:
        """The names of its network cards, as they are now."""
        links = json.loads(self.run("ip", "-json", "-4", "address"))
        return [
            link["ifname"]
            for link in links
            if {address["local"] for address in link["addr_info"]} & set(self.addresses)
        ]

    @property
    def state(self) -> str:
        """The engine's word for it: running, paused, exited, restarting, …"""
        self.container.reload()
        return str(self.container.status)

    def ask(self, *words: str) -> tuple[int, str]:
        """Run a command in the node as root; return its exit status and what it printed.

        Raises:
            RingmasterError: the node isn't running.
        """
        try:
            return command.run(self.container, *words)
        except (APIError, RequestException) as error:
            reason = error.explanation if isinstance(error, APIError) else "it does not answer the engine"
            raise RingmasterError(
                f"{self.name}: {reason}; `python -m lab status` shows the lab", exit_code=ExitCode.CLUSTER
            ) from error


def of_container(container: Container, place: Place) -> Node:
    """Return the node of one of the lab's containers."""
    name = container.labels[NODE_LABEL]
    folder = place.node(name)
    spec = NodeSpec(**json.loads((folder / SPEC_FILE).read_text()))
    return Node(name=name, spec=spec, address=read_settings(folder)["ADDRESS"], folder=folder, container=container)


def read_settings(folder: Path) -> dict[str, str]:
    """Return the settings in a node's folder."""
    lines = (folder / "settings").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)
