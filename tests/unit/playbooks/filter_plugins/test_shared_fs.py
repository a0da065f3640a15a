"""The shared folder: the files of head and clients, also for nodes that are away, and never for everybody."""

from typing import Any

import pytest
from files import changed_files
from shared_fs import EXPORTS, FSTAB, packages_problem, shared_mount, shared_plan

SETTINGS = {"head": "n1", "folder": "/srv/data", "export_options": "rw,sync", "mount_options": "rw,hard"}
ADDRESSES = {f"n{number}": f"192.0.2.{number}" for number in (1, 2, 3)}
PACKAGES = {"nfs-common": "1", "nfs-kernel-server": "1"}
MOUNTED = {"/srv/data": "10.0.0.1:/srv/data"}


def fact(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "user": {"name": "ops"},
        "network": {"cluster": {"address": f"10.0.0.{number}"}},
        "files": {EXPORTS: None, FSTAB: {"text": None, "mode": "0644", "owner": "root"}},
        "mounts": {},
        "packages": PACKAGES,
        "unfinished": [],
        **changed,
    }


@pytest.mark.parametrize(
    ("enabled", "install", "of", "refused"),
    [
        (True, ["nfs-common"], [], True),
        (True, [], ["shared_fs"], False),
        (False, ["nfs-common"], ["shared_fs"], True),
        (False, ["nfs-common"], ["firewall"], False),
    ],
)
def test_packages_do_not_come_or_go_under_running_jobs(
    enabled: bool, install: list[str], of: list[str], refused: bool
) -> None:
    busy = {"in_use": "job night runs there", "packages_of": of}
    expected = "packages can't be changed: job night runs there" if refused else ""
    assert packages_problem(busy, install, enabled=enabled) == expected
    assert packages_problem({**busy, "in_use": ""}, install, enabled=enabled) == ""


FACTS = {f"n{number}": fact(number) for number in (1, 2, 3)}


def plan(me: str, facts: dict[str, Any] = FACTS, addresses: dict[str, str] = ADDRESSES, **changed: str) -> Any:
    return shared_plan(facts, addresses, me, {**SETTINGS, **changed})


def written(me: str, facts: dict[str, Any] = FACTS, **changed: Any) -> dict[str, str]:
    """What is written on a node, by path."""
    return {one["path"]: one["text"] for one in changed_files(plan(me, facts, **changed)["files"], facts[me]["files"])}


def after(facts: dict[str, Any] = FACTS) -> dict[str, Any]:
    """The nodes as the probe shows them when all is done."""
    done = {}
    for name, one in facts.items():
        here = {path: {"text": text, "mode": "0644", "owner": "root"} for path, text in written(name, facts).items()}
        mounts = {} if name == SETTINGS["head"] else MOUNTED
        done[name] = {**one, "files": {**one["files"], **here}, "mounts": mounts}
    return done


def only(facts: dict[str, Any], *names: str) -> dict[str, Any]:
    """As if only these had been looked at."""
    return {name: facts[name] for name in names}


def clients(text: str) -> list[str]:
    """What is exported to whom; a line without a client would be for the whole world."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.count(" ") == 1 and line.split()[1].endswith(")") and line.split()[1][0] != "(" for line in lines)
    return [line.split()[1].partition("(")[0] for line in lines]


def test_texts_of_head_and_clients() -> None:
    assert written("n1") == {
        EXPORTS: "# Written by Ringmaster (role shared_fs); removed by reset.\n"
        "# ringmaster n2\n/srv/data 10.0.0.2(rw,sync)\n# ringmaster n3\n/srv/data 10.0.0.3(rw,sync)\n"
    }
    assert written("n2") == {FSTAB: "10.0.0.1:/srv/data /srv/data nfs rw,hard 0 0\n"}


def test_ipv6_addresses_are_bracketed_in_fstab_only() -> None:
    facts = {name: fact(1, network={"cluster": {"address": f"fd00::{name[1]}"}}) for name in FACTS}
    assert written("n2", facts)[FSTAB].startswith("[fd00::1]:/srv/data ")
    assert clients(written("n1", facts)[EXPORTS]) == ["fd00::2", "fd00::3"]


def test_a_converged_node_has_nothing_to_do() -> None:
    done = after()
    for me in done:
        assert written(me, done) == {}
        now = plan(me, done)
        assert (now["install"], now["mount"], now["unmount"], now["problem"]) == ([], False, "", "")


def test_packages_by_part_and_only_where_missing() -> None:
    bare = {name: fact(1, packages={}) for name in FACTS}
    assert plan("n1", bare)["install"] == ["nfs-kernel-server"]
    assert plan("n2", bare)["install"] == ["nfs-common"]
    assert plan("n2", {**FACTS, "n2": fact(2, unfinished=["nfs-common"])})["install"] == ["nfs-common"]


def test_the_head_alone_exports_to_the_addresses_of_the_inventory() -> None:
    assert clients(written("n1", only(FACTS, "n1"))[EXPORTS]) == ["192.0.2.2", "192.0.2.3"]


def test_clients_that_are_away_keep_their_lines() -> None:
    done = after()
    assert written("n1", only(done, "n1")) == {}
    moved = {**only(done, "n1"), "n2": fact(2, network={"cluster": {"address": "10.9.9.2"}})}
    assert clients(written("n1", moved)[EXPORTS]) == ["10.9.9.2", "10.0.0.3"]


def test_nodes_that_left_the_inventory_are_let_in_no_longer() -> None:
    left = {name: ADDRESSES[name] for name in ("n1", "n2")}
    assert clients(written("n1", only(after(), "n1", "n2"), addresses=left)[EXPORTS]) == ["10.0.0.2"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "*", "-x", ""])
def test_nobody_is_exported_to_whose_address_is_unknown(address: str) -> None:
    for addresses in ({**ADDRESSES, "n2": address, "n3": address}, {"n1": "192.0.2.1"}):
        assert clients(written("n1", only(FACTS, "n1"), addresses=addresses)[EXPORTS]) == []


def test_a_head_that_is_away_is_kept_or_found_by_its_address() -> None:
    assert written("n2", only(after(), "n2")) == {}
    new = only(FACTS, "n2")
    assert written("n2", new) == {FSTAB: "192.0.2.1:/srv/data /srv/data nfs rw,hard 0 0\n"}
    assert not plan("n2", new)["mount"]
    assert plan("n2")["mount"]
    assert "address of n1 (shared_fs_head) isn't" in plan("n2", new, {**ADDRESSES, "n1": "127.0.0.1"})["problem"]


def test_another_folder_is_mounted_instead() -> None:
    now = plan("n2", after(), folder="/srv/new")
    assert (now["unmount"], now["mount"]) == ("/srv/data", True)
    assert written("n2", after(), folder="/srv/new") == {FSTAB: "10.0.0.1:/srv/new /srv/new nfs rw,hard 0 0\n"}
    assert plan("n2", after(), mount_options="ro")["unmount"] == ""


def test_another_head_turns_the_roles_round() -> None:
    done = after()
    assert plan("n2", done, head="n2")["unmount"] == "/srv/data"
    assert not plan("n2", done, head="n2")["mount"]
    new_head, old_head = written("n2", done, head="n2"), written("n1", done, head="n2")
    assert new_head[FSTAB] == ""
    assert clients(new_head[EXPORTS]) == ["10.0.0.1", "10.0.0.3"]
    assert clients(old_head[EXPORTS]) == []
    assert old_head[FSTAB].startswith("10.0.0.2:/srv/data ")
    assert (plan("n3", done, head="n2")["unmount"], plan("n3", done, head="n2")["mount"]) == ("/srv/data", True)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("head", "n9"),
        *[
            ("folder", one)
            for one in ("data", "/", "", "/a b", "/a/", "/a/../b", "//a", '/a"b', "/a#b", "/a\n/b", "/a(b")
        ],
        ("export_options", "rw, sync"),
        ("export_options", ""),
        ("mount_options", "rw hard"),
    ],
)
def test_what_can_not_be_written_is_refused_in_a_line(setting: str, value: str) -> None:
    for me in FACTS:
        refused = plan(me, **{setting: value})
        assert refused["problem"].startswith(f"shared_fs_{setting}: '{value}' ")
        assert (refused["files"], refused["install"], refused["mount"]) == ([], [], False)


def test_what_is_mounted_is_read_from_fstab() -> None:
    assert shared_mount(after()["n2"]) == "/srv/data"
    assert shared_mount(FACTS["n2"]) == ""
    assert shared_mount(fact(2, files={FSTAB: None})) == ""
