"""Where a lab of this checkout keeps its files, and the labels its containers are found by."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from launcher.program import ROOT

LABEL = "ringmaster.lab"
NODE_LABEL = "ringmaster.lab.node"
SPEC_LABEL = "ringmaster.lab.spec"
IMAGE_LABEL = "ringmaster.lab.image"
CHECKOUT_LABEL = "ringmaster.lab.checkout"
CHECKOUT = hashlib.sha256(str(ROOT).encode()).hexdigest()[:10]
STATE = ROOT / ".lab"
ENGINE_RECORD = STATE / "engine.json"
DEFAULT_NAME = "lab"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One lab of this checkout: `lab` is the user's, `test` the one that tests start when they need their own."""

    name: str = DEFAULT_NAME

    @property
    def label(self) -> str:
        """Two checkouts, and two labs of one checkout, never share it."""
        return f"{CHECKOUT}-{self.name}"

    @property
    def state(self) -> Path:
        return STATE / self.name

    @property
    def key(self) -> Path:
        """The operator's private key, made for this lab."""
        return self.state / "operator_key"

    @property
    def known_hosts(self) -> Path:
        return self.state / "known_hosts"

    def node(self, name: str) -> Path:
        """The folder that this machine and a node share: its disk, its settings, what its stand-ins show."""
        return self.state / "nodes" / name

    @property
    def inventory(self) -> Path:
        return ROOT / "inventory" / "lab.yml" if self.name == DEFAULT_NAME else self.state / "inventory.yml"

    @property
    def ssh_config(self) -> Path:
        return self.inventory.with_name(f"{self.name}.ssh_config")

    @property
    def filters(self) -> dict[str, str | list[str] | bool]:
        return {"label": f"{LABEL}={self.label}"}
