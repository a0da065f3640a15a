"""Every role is whole: its variables are specified, documented and given the same defaults; each has its undo."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.base.paths import ROOT

PLAYBOOKS = ROOT / "playbooks"
ROLES = sorted(path.name for path in (PLAYBOOKS / "roles").iterdir())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("role", ROLES)
def test_specification_and_defaults_agree(role: str) -> None:
    folder = PLAYBOOKS / "roles" / role
    specs = load(folder / "meta" / "argument_specs.yml")["argument_specs"]
    defaults = load(folder / "defaults" / "main.yml") or {}
    options = specs["main"]["options"]
    assert set(options) == set(defaults)
    assert all(name.startswith(f"{role}_") for name in options)
    for name, option in options.items():
        assert option["description"], name
        if "{{" not in str(defaults[name]):
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("role", ROLES)
def test_every_way_into_a_role_is_specified(role: str) -> None:
    folder = PLAYBOOKS / "roles" / role
    specs = load(folder / "meta" / "argument_specs.yml")["argument_specs"]
    assert {"main", "verify", "reset"} <= set(specs)
    assert all((folder / "tasks" / f"{entry}.yml").exists() for entry in specs)


@pytest.mark.parametrize("role", ROLES)
def test_the_page_of_a_role_has_its_variables(role: str) -> None:
    folder = PLAYBOOKS / "roles" / role
    page = (folder / "README.md").read_text()
    options = load(folder / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    documented = set(re.findall(rf"^\| `({role}_\w+)` \|", page, re.MULTILINE))
    assert documented == set(options)


def test_every_role_is_verified_and_taken_back() -> None:
    provisioned = [one["role"] for one in load(PLAYBOOKS / "site.yml")[0]["roles"]]
    assert sorted(provisioned) == ROLES
    for playbook in ("verify.yml", "reset.yml"):
        tasks = load(PLAYBOOKS / playbook)[0]["tasks"]
        names = [task["ansible.builtin.import_role"]["name"] for task in tasks if "ansible.builtin.import_role" in task]
        assert sorted(names) == ROLES, playbook
    # The newest change goes first.
    assert names[0] == "preflight"
    assert names[1:] == provisioned[:0:-1]


def test_nothing_switches_host_key_checking_off() -> None:
    """That pyproject.toml names what is banned is no use of it."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in tracked if not name.startswith(("tests/", "docs/")) and not name.endswith(".md")]
    forbidden = re.compile(
        r"StrictHostKeyChecking[= ]+(no|accept-new|off)|host_key_checking\s*[:=]\s*(false|no|0)"
        r"|AutoAddPolicy(?!.\.msg)|ANSIBLE_HOST_KEY_CHECKING\W+(0|False)|UserKnownHostsFile[= ]+/dev/null",
        re.IGNORECASE,
    )
    assert [name for name in files if forbidden.search((ROOT / name).read_text(errors="replace"))] == []


@pytest.mark.parametrize("role", ROLES)
def test_what_runs_on_a_node_has_a_limit(role: str) -> None:
    """A mount of a server that is down hangs in the kernel: without a limit, all nodes would wait with this one."""
    tasks = [task for path in (PLAYBOOKS / "roles" / role / "tasks").glob("*.yml") for task in load(path)]
    run = [
        task for task in tasks if set(task) & {"ansible.builtin.command", "ansible.builtin.shell", "ringmaster_probe"}
    ]
    assert [task["name"] for task in run if not 0 < task.get("timeout", 0) <= 180] == []
