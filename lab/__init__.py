"""The lab: a rehearsal cluster of containers on this machine, each node booting systemd like a rented machine."""
