"""What the user sees of a followed job, however slowly it is read."""
