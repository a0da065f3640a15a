"""Models, and what trains them: loss, optimizers, precision, compilation, data parallelism."""
