"""The training loop, and what surrounds it: evaluation, saving, resuming, results."""
