"""Helpers that every other package may use; they import none of them."""
