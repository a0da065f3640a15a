"""The container engine on the nodes, which is Docker: a job's containers are found, started, followed and removed here.

Another engine is a package beside this one that offers the same: `runtime.py` implements `launcher/follow/runtime.py`,
and `containers.py` answers what other packages ask about containers. Outside this package, these know Docker: what a
container is given (`launcher/job/container.py`), the way to a node's engine (`launcher/ssh/docker_transport.py`,
`Remote.engine`), building the image (`launcher/image`), and installing the engine (role `docker_engine`).
"""
