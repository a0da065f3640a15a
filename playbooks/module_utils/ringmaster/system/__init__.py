"""Reads what a node is: its system, network and GPUs."""
