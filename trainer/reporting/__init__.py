"""Metrics, the summary and the report. Free of torch."""
