"""The manifest of what provisioning changed, blocks in files of others, disks."""
