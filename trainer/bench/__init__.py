"""Measures the input pipeline (`--bench-input`)."""
