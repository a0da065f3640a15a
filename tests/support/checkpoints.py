"""Checkpoints as the bundled trainer writes them."""

from pathlib import Path

from trainer.checkpoint.files import CheckpointFolder


def written(folder: Path, *steps: int, content: bytes = b"", keep: int = 100) -> list[Path]:
    """Write a checkpoint for each step, by the trainer's own code; return the paths of their contents."""
    facts = {
        "epoch": 0,
        "position": 0,
        "world_size": 2,
        "global_batch": 8,
        "dataset": "synthetic",
        "model": "small-cnn",
    }
    facts |= {"optimizer": "sgd", "torch": "2.9", "test_accuracy": None}
    return [
        CheckpointFolder(folder).write(content or f"of step {step}".encode(), {**facts, "step": step}, keep=keep)
        for step in steps
    ]
