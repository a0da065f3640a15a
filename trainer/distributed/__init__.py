"""Ranks: the process group, agreement among ranks, CPU affinity, threads, signals."""
