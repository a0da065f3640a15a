"""Ringmaster's bundled trainer: `torchrun --nproc-per-node=2 -m trainer`, or `python -m trainer` for one rank."""
