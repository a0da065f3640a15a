"""ufw: rules, the way back, looking and undoing."""
