"""Debian packages: installed through a journal, and undone."""
