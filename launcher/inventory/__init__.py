"""The inventory: hosts, their settings, their SSH options."""
