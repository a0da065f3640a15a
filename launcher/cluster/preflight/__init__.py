"""Checks before a job starts, as pure functions of what the nodes answered."""
