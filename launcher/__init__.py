"""Turns an inventory and a request into a plan, and carries the plan out."""
