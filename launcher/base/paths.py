"""The places of the checkout's files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: the code root of the bundled trainer, with `runs/` and `data/` in it."""
ON_NODE = ROOT / "launcher" / "on_node"
"""The programs that run on nodes: they are sent there as text, or copied into the image."""
SYSTEMS_ENGINE = "unix:///var/run/docker.sock"
"""The engine on a node: every command names it, as the user's own settings there may name another."""
