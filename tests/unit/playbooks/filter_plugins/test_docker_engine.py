"""Plans for a node's engine, without a node."""

import json
from typing import Any

import pytest
import yaml
from docker_engine import engine_findings, engine_plan

from launcher.base.paths import ROOT

_DEFAULTS = yaml.safe_load((ROOT / "playbooks/roles/docker_engine/defaults/main.yml").read_text())
SETTINGS = {name.removeprefix("docker_engine_"): value for name, value in _DEFAULTS.items()} | {
    "source": "distribution"
}
CONFIG = {"live-restore": True, "log-driver": "json-file", "log-opts": {"max-size": "50m", "max-file": "3"}}
TOOLKIT = [
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
]
INFO = {"ServerVersion": "20.10.24+dfsg1", "LiveRestoreEnabled": True}


def bare(**changes: Any) -> dict[str, Any]:
    """A node without an engine."""
    engine = {
        "present": False, "cli": False, "snap": False, "podman": "", "rootless": [],
        "version": None, "answers": False, "stale": [], "swarm": False,
        "tcp": [], "user_in_group": False, "needs_apparmor": False,
    }  # fmt: skip
    return {
        "user": {"name": "ops"},
        "os": {"id": "debian", "version": "12", "codename": "bookworm"},
        "arch": "x86_64",
        "gpus": [],
        "packages": {},
        "held": [],
        "unfinished": [],
        "apt_sources": [],
        "signing_keys": {},
        "files": {"/etc/docker/daemon.json": None},
        "jobs": [],
        "in_use": "",
        "toolkit": {"present": False, "version": None},
        **changes,
        "engine": {**engine, **changes.get("engine", {})},
    }


def ready(**changes: Any) -> dict[str, Any]:
    """A node on which nothing differs."""
    engine = {"present": True, "cli": True, "version": "20.10.24", "answers": True, "user_in_group": True}
    packages = {"docker.io": "20.10.24+dfsg1-1", "containerd": "1.6.20~ds1-1", "runc": "1.1.5+ds1-1"}
    return bare(
        **{
            "packages": packages,
            "held": list(packages),
            "files": {"/etc/docker/daemon.json": {"text": json.dumps(CONFIG)}},
            **changes,
            "engine": {**engine, **changes.get("engine", {})},
        }
    )


def plan(facts: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return engine_plan(facts, {**SETTINGS, **settings})


def config_of(text: str, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = plan(ready(files={"/etc/docker/daemon.json": {"text": text}}), **settings)["config"]
    return found


def test_a_bare_node_gets_all_of_it() -> None:
    assert plan(bare()) == {
        "problem": "",
        "config": CONFIG,
        "sources": [],
        "packages": ["docker.io", "containerd", "runc"],
        "hold": ["docker.io", "docker-cli", "containerd", "runc", *TOOLKIT],
        "minimum": {"docker.io": "20.10"},
        "settle": True,
        "touched": True,
    }


def test_nothing_is_installed_under_containers_with_gpus() -> None:
    refused = plan(ready(packages={}, engine={"present": False, "answers": False}, in_use="container web runs there"))
    assert "docker.io, containerd, runc would be installed: container web runs there" in refused["problem"]
    config = {"/etc/docker/daemon.json": {"text": "{}"}}
    assert plan(ready(files=config, in_use="container web runs there"))["problem"] == "", "only jobs forbid a restart"
    assert plan(ready(in_use="container web runs there"))["problem"] == ""


def test_a_node_that_is_so_is_not_touched() -> None:
    found = plan(ready())
    assert found == {
        "problem": "", "config": {}, "sources": [], "packages": [], "hold": [], "minimum": {}, "settle": False,
        "touched": False,
    }  # fmt: skip
    assert engine_findings(ready(), INFO, SETTINGS) == []


def test_newer_distributions_and_apparmor_need_more() -> None:
    facts = bare(os={"id": "debian", "version": "13", "codename": "trixie"}, engine={"needs_apparmor": True})
    wanted = ["docker.io", "docker-cli", "docker-buildx", "containerd", "runc", "apparmor"]
    assert plan(facts)["packages"] == wanted


def test_newer_engines_get_what_builds_images() -> None:
    facts = bare(os={"id": "ubuntu", "version": "24.04", "codename": "noble"})
    assert "docker-buildx" in plan(facts)["packages"]


@pytest.mark.parametrize(
    "packages",
    [
        {"docker-ce": "5:24.0.7-1~debian.12~bookworm", "containerd.io": "1.6.26-1"},
        {"moby-engine": "24.0.9-ubuntu22.04u1"},
        {},  # none of apt's
    ],
)
def test_an_engine_that_is_there_is_kept(packages: dict[str, str]) -> None:
    facts = ready(packages=packages, held=[], engine={"version": "24.0.7"})
    found = plan(facts)
    assert found["packages"] == []
    assert found["sources"] == []
    assert set(packages) <= set(found["hold"]) or not packages
    assert plan(facts, source="vendor")["packages"] == []


def test_one_that_was_killed_at_its_installation_is_not_taken_for_anothers() -> None:
    facts = ready(packages={"runc": "1"}, held=[], unfinished=["docker.io", "containerd"])
    assert plan(facts)["packages"] == ["docker.io", "containerd"]
    assert plan(bare(unfinished=["containerd"]))["packages"] == ["docker.io", "containerd", "runc"]
    facts = ready(gpus=[{"index": 0}], toolkit={"present": True, "version": None}, unfinished=[TOOLKIT[0]])
    assert plan(facts)["packages"] == TOOLKIT


def test_one_that_is_too_old_is_upgraded_from_where_it_came() -> None:
    facts = ready(packages={"docker-ce": "5:19.03.15~3-0", "containerd.io": "1.4"}, engine={"version": "19.03.15"})
    found = plan(facts)
    assert found["packages"] == ["docker-ce", "containerd.io"]
    assert found["minimum"] == {"docker-ce": "20.10"}


def test_vendor_packages_and_their_source() -> None:
    found = plan(bare(arch="aarch64", os={"id": "ubuntu", "version": "22.04", "codename": "jammy"}), source="vendor")
    assert found["packages"] == ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin"]
    (source,) = found["sources"]
    assert source["path"] == "/etc/apt/sources.list.d/ringmaster-docker.sources"
    assert source["key_url"] == "https://download.docker.com/linux/ubuntu/gpg"
    assert source["text"] == (
        "Types: deb\nURIs: https://download.docker.com/linux/ubuntu\nSuites: jammy\nComponents: stable\n"
        "Architectures: arm64\nSigned-By: /etc/apt/keyrings/ringmaster-docker.asc\n"
    )
    known = bare(apt_sources=["https://download.docker.com/linux/debian"])
    assert plan(known, source="vendor")["sources"] == []
    assert (
        "set ringmaster_engine_source"
        in plan(bare(os={"id": "mint", "version": "22", "codename": "x"}), source="vendor")["problem"]
    )


def test_a_key_that_was_added_to_a_file_of_ours_is_found_and_replaced() -> None:
    expected, path = SETTINGS["docker"]["fingerprint"].replace(" ", ""), "/etc/apt/keyrings/ringmaster-docker.asc"

    def node(*keys: str) -> dict[str, Any]:
        return ready(apt_sources=[f"{SETTINGS['docker']['url']}/debian"], signing_keys={path: list(keys)})

    assert not plan(node(expected))["touched"]
    assert engine_findings(node(expected), INFO, SETTINGS) == []
    for keys in ([expected, "ANOTHER"], ["ANOTHER"], []):
        found = plan(node(*keys))
        assert found["touched"]
        assert [source["key_path"] for source in found["sources"]] == [path]
        (finding,) = engine_findings(node(*keys), INFO, SETTINGS)
        assert finding.startswith(f"apt trusts {' and '.join(keys) or 'no readable key'} by {path}, not 9DC8 5822")
    # Without the source, the file is asked by nobody.
    assert not plan(ready(signing_keys={path: ["ANOTHER"]}))["touched"]


def test_the_toolkit_comes_only_where_it_is_missing_or_too_old() -> None:
    gpus = [{"index": 0}]
    found = plan(ready(gpus=gpus))
    assert found["packages"] == TOOLKIT
    assert "URIs: https://nvidia.github.io/libnvidia-container/stable/deb/amd64\n" in found["sources"][0]["text"]
    assert "Suites: /\n" in found["sources"][0]["text"]
    assert "Components" not in found["sources"][0]["text"]
    assert plan(ready(gpus=gpus), toolkit="absent")["packages"] == []
    assert plan(ready(), toolkit="present")["packages"] == TOOLKIT
    for version, wanted in ((None, []), ("1.17.8", []), ("1.18.0", []), ("1.17.4", ["nvidia-container-toolkit"])):
        facts = ready(gpus=gpus, toolkit={"present": True, "version": version})
        facts["packages"]["nvidia-container-toolkit"] = version or ""
        assert plan(facts)["packages"] == wanted


def test_the_users_own_keys_and_log_driver_stay() -> None:
    assert config_of("") == CONFIG
    assert config_of('{"live-restore": true, "log-driver": "journald"}') == {}
    assert config_of('{"log-driver": "local"}') == {"live-restore": True}
    assert config_of('{"log-opts": {"max-size": "1g"}}') == {"live-restore": True}
    assert config_of('{"log-opts": {"labels": "x"}}')["log-opts"] == {
        "labels": "x",
        "max-size": "50m",
        "max-file": "3",
    }
    assert "live-restore" not in config_of("", live_restore=False)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1,}'])
def test_a_broken_configuration_is_named(text: str) -> None:
    found = plan(ready(files={"/etc/docker/daemon.json": {"text": text}}))
    assert found["problem"].startswith("/etc/docker/daemon.json isn't valid JSON")


def test_nothing_is_changed_while_a_job_runs_and_nothing_is_said_if_nothing_is_to_be() -> None:
    assert plan(ready(jobs=["brave-otter"]))["problem"] == ""
    for change in (
        {"engine": {"stale": ["/etc/docker/daemon.json"]}},
        {"files": {"/etc/docker/daemon.json": None}},
        {"gpus": [{"index": 0}]},
    ):
        problem = plan(ready(jobs=["brave-otter"], **change))["problem"]
        assert "job brave-otter runs there" in problem
        assert "again when it has ended" in problem
    # Membership and holds don't disturb it.
    assert plan(ready(jobs=["brave-otter"], held=[], engine={"user_in_group": False}))["problem"] == ""


def test_a_snap_podman_a_users_own_engine_and_a_swarm_are_refused_with_the_way_out() -> None:
    assert "snap remove docker" in plan(bare(engine={"snap": True}))["problem"]
    shim = plan(bare(engine={"podman": "podman version 4.3.1"}))["problem"]
    assert "is Podman's (podman version 4.3.1)" in shim and "apt remove podman-docker" in shim
    rootless = plan(bare(engine={"rootless": ["/run/user/1000/docker.pid"]}))["problem"]
    assert "(/run/user/1000/docker.pid)" in rootless and "`sudo systemctl enable --now docker`" in rootless
    swarm = ready(engine={"swarm": True})
    assert "docker swarm leave" in plan(swarm)["problem"]
    assert plan(swarm, live_restore=False)["problem"] == ""


@pytest.mark.parametrize(
    ("changes", "info", "says"),
    [
        ({}, None, "doesn't answer"),
        ({}, {**INFO, "ServerVersion": "19.03.1"}, "20.10 or newer is needed"),
        ({}, {**INFO, "LiveRestoreEnabled": False}, "live-restore"),
        ({"engine": {"tcp": ["any address, port 2375"]}}, INFO, "over TCP (any address, port 2375)"),
        ({"engine": {"user_in_group": False}}, INFO, "ops isn't in the group docker"),
        ({"engine": {"stale": ["/x"]}}, INFO, "hasn't read /x yet"),
        ({"held": []}, INFO, "docker.io, containerd, runc may be upgraded"),
        ({"files": {"/etc/docker/daemon.json": None}}, INFO, "lacks our live-restore, log-driver, log-opts"),
        ({"gpus": [{"index": 0}]}, INFO, "not NVIDIA's container toolkit"),
        ({"gpus": [{"index": 0}], "toolkit": {"present": True, "version": "1.16.2"}}, INFO, "1.17.8 is needed"),
        ({"engine": {"cli": False}}, INFO, "no docker command"),
    ],
)
def test_verification_names_what_is_wrong(changes: dict[str, Any], info: dict[str, Any] | None, says: str) -> None:
    (finding,) = engine_findings(ready(**changes), info, SETTINGS)
    assert says in finding
