"""What unit tests import first."""

# Ansible patches sys.intern when it is imported, and torch refuses to be imported whole after that: it goes first.
import torch._dynamo  # noqa: F401
