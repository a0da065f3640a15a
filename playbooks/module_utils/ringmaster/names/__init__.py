"""Loopback lines in /etc/hosts."""
