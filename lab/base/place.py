"""Where a lab of this checkout keeps its files, and the labels of its containers."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT

LABEL = "ringmaster.lab"
NODE_LABEL = "ringmaster.lab.node"
SPEC_LABEL = "ringmaster.lab.spec"
IMAGE_LABEL = "ringmaster.lab.image"
CHECKOUT_LABEL = "ringmaster.lab.checkout"
CHECKOUT = hashlib.sha256(str(ROOT).encode()).hexdigest()[:10]
STATE = ROOT / ".lab"
ENGINE_RECORD = STATE / "engine.json"
DEFAULT_NAME = "lab"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_RESERVED = {"images", "build"}  # a folder of STATE that is no lab, and the label of builds


@dataclass(frozen=True, kw_only=True)
class Place:
    """One lab of this checkout: `lab` is the user's, `test` is the one that tests start for themselves."""

    name: str = DEFAULT_NAME

    def __post_init__(self) -> None:
        # A folder of this name is removed with everything in it: nothing like `..` may pass.
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED:
            raise RingmasterError(
                f"--name '{self.name}': a lab's name consists of a-z, 0-9 and '-', and is not "
                f"{' or '.join(sorted(_RESERVED))}"
            )

    @property
    def label(self) -> str:
        """The label's value, which no two checkouts, and no two labs of one checkout, share."""
        return f"{CHECKOUT}-{self.name}"

    @property
    def state(self) -> Path:
        """The folder with everything of this lab but the user's files."""
        return STATE / self.name

    @property
    def key(self) -> Path:
        """The operator's private key, made for this lab."""
        return self.state / "operator_key"

    @property
    def known_hosts(self) -> Path:
        """The nodes' host keys."""
        return self.state / "known_hosts"

    def node(self, name: str) -> Path:
        """Return the folder that this machine and a node share: its disk, its settings, its stand-ins' state."""
        return self.state / "nodes" / name

    @property
    def inventory(self) -> Path:
        """The inventory of the nodes; the user's lab has it beside the other inventories."""
        return ROOT / "inventory" / "lab.yml" if self.name == DEFAULT_NAME else self.state / "inventory.yml"

    @property
    def ssh_config(self) -> Path:
        """The configuration with which ssh reaches the nodes, beside the inventory."""
        return self.inventory.with_name(f"{self.name}.ssh_config")

    @property
    def filters(self) -> dict[str, str | list[str] | bool]:
        """The engine's filter for this lab's containers."""
        return {"label": f"{LABEL}={self.label}"}


def places(labels: Iterable[str] = ()) -> list[Place]:
    """Return every lab of this checkout that has a folder or a label in the engine, also if it was interrupted early.

    `labels` are the values of LABEL in the engine, of this checkout and of others.
    """
    names = {folder.name for folder in STATE.glob("*") if folder.is_dir()}
    names |= {label.removeprefix(f"{CHECKOUT}-") for label in labels if label.startswith(f"{CHECKOUT}-")}
    return [Place(name=name) for name in sorted(names - _RESERVED) if _NAME.fullmatch(name)]
