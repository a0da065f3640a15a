"""Image folders decoded by worker processes while training goes on."""
