"""One SSH connection a node, for commands, files and the Docker API."""
