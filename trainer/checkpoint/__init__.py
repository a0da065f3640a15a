"""Checkpoint files, and the state they hold."""
