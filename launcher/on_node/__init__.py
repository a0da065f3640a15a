"""Programs that run on the nodes: each is one file that imports only the standard library and runs on Python 3.9.

- `probe.py`: what a node reports of itself before a job; sent as text.
- `job_folder.py`: creates, describes and closes a job's folder; sent as text.
- `tree_store.py`: stores code and data on a node; sent as text.
- `rank.py`: runs one rank's program; copied into the image, or started in place on this machine.
- `addresses.py`: which of the addresses that the probe reports is the cluster's; imported, also by Ansible's modules.
"""
