"""The container engine on the nodes, which is Docker: a job's containers are found, started, followed and removed here.

Another engine is a package beside this one with the same files: `runtime.py` implements `launcher/follow/runtime.py`
and what `ClusterJob` calls besides, `containers.py` answers what other packages ask about containers. Who chooses it:
`launcher/inventory/settings.py`, `launcher/commands/train.py` and `launcher/cluster/job.py`. Who else knows Docker:

- `launcher/cluster/site.py`, which looks for the image on a node;
- `launcher/job/container.py`: what a container is given, as the engine's arguments;
- `launcher/ssh/connection.py` (`Remote.engine`) and `docker_transport.py`: the way to a node's engine;
- `launcher/image`: the image's build;
- for provisioning, the roles `docker_engine` and `train_image`, with `engine` and `image` in `module_utils/ringmaster`.
"""
