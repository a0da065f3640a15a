"""The node's own SSH key."""
