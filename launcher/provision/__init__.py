"""ansible-playbook as a child process, and the first contact with a node."""
