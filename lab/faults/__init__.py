"""What can go wrong with nodes and links, each with its undo."""
