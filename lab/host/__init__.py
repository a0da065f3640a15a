"""This machine under the lab: its Docker engine, its packages, what it hands to the nodes."""
