"""Measures the input pipeline (`python -m trainer bench-input`)."""
