"""The manifest of what provisioning changed, blocks in others' files, writing whole files, the probe, the addresses."""
