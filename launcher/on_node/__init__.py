"""Programs that run on the nodes: single files that import only the standard library."""
