"""The training image: what is in it, its build, its record."""
