"""Measurements behind the figures in docs/performance.md."""
