"""Makes the plugins beside the playbooks importable as Ansible makes them importable."""

import sys

import ansible.module_utils

from launcher.base.paths import ROOT

PLAYBOOKS = ROOT / "playbooks"

ansible.module_utils.__path__.append(str(PLAYBOOKS / "module_utils"))
for folder in ("library", "filter_plugins", "action_plugins", "callback_plugins"):
    sys.path.append(str(PLAYBOOKS / folder))
