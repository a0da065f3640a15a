"""Makes the plugins beside the playbooks importable as Ansible makes them importable."""

import sys

from launcher.base.paths import ROOT

# Ansible patches sys.intern when it is imported, and torch refuses to be imported whole after that: it goes first.
import torch._dynamo  # noqa: F401  isort:skip
import ansible.module_utils

PLAYBOOKS = ROOT / "playbooks"

ansible.module_utils.__path__.append(str(PLAYBOOKS / "module_utils"))
for folder in ("library", "filter_plugins", "action_plugins", "callback_plugins"):
    sys.path.append(str(PLAYBOOKS / folder))
