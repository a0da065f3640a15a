"""The Docker engine: its settings and folders, looking and undoing."""
