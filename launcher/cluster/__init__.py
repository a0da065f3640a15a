"""Jobs in containers on the nodes of a cluster."""
