"""How dpkg's and apt's output is read, and which packages become ours to take back. No package is touched."""

import subprocess
from pathlib import Path

import pytest
import ringmaster_packages as module
import ringmaster_undo
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.engine.undo import engine_rules
from ansible.module_utils.ringmaster.packages import apt, dpkg
from ansible.module_utils.ringmaster.packages.undo import removable

STATUS = """\
Package: dpkg
Essential: yes
Status: install ok installed
Architecture: amd64
Version: 1.21.22
Description: Package: not this one
 Status: nor this

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36-9

Package: docker.io
Status: hold ok installed
Architecture: amd64
Version: 20.10.24+dfsg1-1

Package: old
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job runs on this node; its packages are those of STATUS."""

    def refuse() -> None:
        raise ValueError("job night runs there")

    for one in (module, ringmaster_undo):
        monkeypatch.setattr(one, "refuse_in_use", refuse)
    monkeypatch.setattr(module, "Manifest", lambda: None)
    monkeypatch.setattr(module, "packages", lambda: dpkg.known(STATUS))


@pytest.mark.parametrize("check", [False, True])
def test_nothing_is_installed_while_a_job_runs(busy: None, check: bool) -> None:
    wanted = {"role": "r", "names": ["ufw"], "minimum": {}, "hold": [], "lock_timeout": 1}
    with pytest.raises(ValueError, match="job night runs there"):
        module.ensure(wanted, check)
    assert not module.ensure({**wanted, "names": ["dpkg"]}, check)["changed"], "it is there"


def test_nothing_is_removed_while_a_job_runs(busy: None, tmp_path: Path) -> None:
    manifest = Manifest(str(tmp_path / "manifest.json"))
    manifest.note("firewall", "packages", "apt", asked=["ufw"])
    manifest.note("comm_env", "file", "/etc/x", before=None)
    with pytest.raises(ValueError, match="job night runs there"):
        ringmaster_undo.refuse(manifest, "firewall", [])
    ringmaster_undo.refuse(manifest, "firewall", ["packages"])
    ringmaster_undo.refuse(manifest, "comm_env", [])


def test_dpkgs_file_is_read() -> None:
    found = dpkg.known(STATUS)
    assert set(found) == {"dpkg", "libc6:i386", "docker.io", "old"}
    assert found["docker.io"] == dpkg.Package("20.10.24+dfsg1-1", "hold", "installed")
    assert not found["old"].installed
    assert not dpkg.interrupted(found)
    half = dpkg.known(STATUS.replace("hold ok installed", "install reinstreq half-installed"))
    assert dpkg.interrupted(half)
    assert not half["docker.io"].installed


@pytest.mark.parametrize(
    ("version", "minimum", "good"),
    [
        ("5:19.03.15~3-0~debian", "20.10", False),  # an epoch isn't the makers'
        ("5:24.0.7-1~debian.12~bookworm", "20.10", True),
        ("20.10.24+dfsg1-1+deb12u1", "20.10", True),
        ("1.17.8-1", "1.17.8", True),
        ("1.17.4-1", "1.17.8", False),
        ("1.9", "1.17.8", False),
    ],
)
def test_versions_are_compared_by_their_makers_numbers(version: str, minimum: str, good: bool) -> None:
    assert dpkg.at_least(version, minimum) is good


def test_what_is_missing_or_too_old() -> None:
    have = dpkg.known(STATUS)
    assert module.missing(["docker.io", "old", "new"], {}, have) == ["old", "new"]
    assert module.missing(["docker.io"], {"docker.io": "24"}, have) == ["docker.io"]


def test_a_plan_is_read_from_the_simulation() -> None:
    told = "Inst runc (1.1.5 Debian:12 [amd64])\nInst libc6 [2.36-9] (2.36-10 Debian:12 [amd64])\nConf runc (1.1.5)\n"
    assert apt._PLANNED.findall(told) == [("runc", ""), ("libc6", "2.36-9")]


def test_only_what_was_not_there_is_noted_as_ours(tmp_path: Path) -> None:
    manifest = Manifest(str(tmp_path / "manifest.json"))
    have = dpkg.known(STATUS)
    plan = [apt.Step("new", None), apt.Step("old", None), apt.Step("dpkg", "1.21.22"), apt.Step("brought", None)]
    module.note(manifest, "role", plan, ["new", "old"], have)
    entry = Manifest(manifest.path).find("role", "packages", "apt")
    assert entry is not None
    assert entry["asked"] == ["new", "old"]
    assert entry["came"] == ["brought"]
    assert entry["left"] == ["old"]
    assert entry["upgraded"] == {"dpkg": "1.21.22"}
    # Killed, and planned anew: the first note is kept.
    module.note(manifest, "role", [apt.Step("brought", None), apt.Step("later", None)], ["brought"], {})
    assert (entry := Manifest(manifest.path).find("role", "packages", "apt")) is not None
    assert entry["came"] == ["brought", "later"]
    assert entry["asked"] == ["new", "old"]


def test_what_others_need_by_now_stays_with_what_it_needs() -> None:
    # compose (the user's) needs docker; docker needs runc; tini is needed by nobody.
    needs = {"compose": {"docker"}, "docker": {"runc"}, "runc": set(), "tini": set()}

    def removal(names: list[str]) -> set[str]:
        going = set(names)
        while more := {name for name, needed in needs.items() if needed & going} - going:
            going |= more
        return going

    assert removable({"docker", "runc", "tini"}, removal) == {"tini"}
    del needs["compose"]
    assert removable({"docker", "runc", "tini"}, removal) == {"docker", "runc", "tini"}


@pytest.mark.parametrize(
    ("code", "stderr", "says"),
    [
        (100, "W: a\nE: Failed to fetch http://x  404\nE: Unable to fetch", "Failed to fetch http://x 404"),
        (100, "E: You don't have enough free space in /var/cache/apt/archives/.", "archives/: free some there"),
        (100, "x : Depends: y (>= 2) but 1 is to be installed\nE: Unable to correct problems", "x : Depends: y (>= 2)"),
        (1, "dpkg: error processing package a:\n it is bad", "dpkg: error processing package a: it is bad"),
        (0, "W: Failed to fetch http://x  Could not connect", "Failed to fetch http://x Could not connect"),
        (-9, "", "ended from outside (signal 9)"),
        (1, "", "exit code 1"),
    ],
)  # fmt: skip
def test_a_complaint_is_one_line(code: int, stderr: str, says: str) -> None:
    told = apt.complaint(subprocess.CompletedProcess(["apt-get"], code, "", stderr))
    assert says in told
    assert "\n" not in told


def test_a_lock_is_waited_for_and_its_holder_named(monkeypatch: pytest.MonkeyPatch) -> None:
    holders = iter(["unattended-upgrade (pid 7)", "unattended-upgrade (pid 7)", None])
    monkeypatch.setattr(apt, "holder", lambda: next(holders))
    monkeypatch.setattr(apt.time, "sleep", lambda _: None)
    assert apt.Apt(60)._run(["true"]).returncode == 0
    monkeypatch.setattr(apt, "holder", lambda: "unattended-upgrade (pid 7)")
    with pytest.raises(apt.AptError, match=r"unattended-upgrade \(pid 7\) has held apt's lock"):
        apt.Apt(0)._run(["true"])


def test_the_engines_rules_are_told_from_others() -> None:
    rules = [
        "-P FORWARD DROP",
        "-N DOCKER",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -i docker0 -o docker0 -j ACCEPT",
        "-A DOCKER -i docker0 -j RETURN",
        "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
        '-A INPUT -s 10.0.0.2/32 -m comment --comment "for docker0" -j ACCEPT',
        "-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT",
    ]
    assert engine_rules(rules, ["docker0"]) == [rules[2], rules[3], rules[5]]
