"""Delivery of the training image among the nodes."""
