"""Where the checkout's files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: the bundled trainer's code root, and where `runs/` and `data/` are."""
ON_NODE = ROOT / "launcher" / "on_node"
"""Programs that run on nodes: sent there as text, or copied into the image."""
