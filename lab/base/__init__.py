"""What the other packages of the lab use: places, messages, checks, archives, commands."""
