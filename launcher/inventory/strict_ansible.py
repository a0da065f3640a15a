"""Ansible inside this process: strict, with the settings of our playbooks, and without a trace afterwards."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr

from launcher.base.paths import ROOT

# Ansible's defaults let broken entries pass with a warning; a cluster that is half described must not start.
STRICT = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    # Our own files, in a folder that is an inventory.
    "ANSIBLE_INVENTORY_IGNORE_REGEX": r"^(known_hosts|image\.yml|.*\.ssh_config)$",
}


@contextmanager
def strict_ansible() -> Iterator[io.StringIO]:
    """Set Ansible's strict settings, which it reads when imported, and collect what it prints.

    Its other settings are those that ansible-playbook, which is started in the checkout, finds: our ansible.cfg, or the
    file that ANSIBLE_CONFIG names. Afterwards everything is as before: neither reaches the user's script or screen.
    """
    before = {name: os.environ.get(name) for name in STRICT}
    errors = sys.stdout.errors
    os.environ.update(STRICT)
    try:
        with redirect_stderr(io.StringIO()) as stderr:
            if "ansible.constants" not in sys.modules:
                with chdir(ROOT):
                    import ansible.constants  # noqa: F401  it looks for ansible.cfg now, and never again
            yield stderr
    finally:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=errors)  # Ansible sets its own, which puts a "?" for what is not UTF-8
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
