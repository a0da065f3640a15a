"""Who may log in from where, which host keys the nodes have, and which of the texts a node lacks."""

from typing import Any

import pytest
from files import changed_files
from nodes import proved
from ssh_mesh import mesh_files, mesh_partners, mesh_targets

KEY = "ssh-ed25519 AAAA{} somebody"
NAMES = {"n1": ["n1"], "n2": ["n2", "gpu2"], "n3": ["n3"]}


def fact(number: int, **changed: Any) -> dict[str, Any]:
    address = f"10.0.0.{number}"
    return {
        "hostname": f"n{number}",
        "user": {"name": "ops", "home": "/home/ops"},
        "ssh": {"client": "10.0.0.9", "address": address, "port": 22},
        "firewall": {"ports": [22]},
        "host_keys": [f"ssh-ed25519 HOST{number}"],
        "public_key": KEY.format(number),
        "network": {"cluster": {"address": address}, "routes": {}},
        **changed,
    }


FACTS = {f"n{number}": fact(number) for number in (1, 2, 3)}
HOSTVARS: dict[str, dict[str, Any]] = {"n1": {}, "n2": {"ansible_host": "192.0.2.2"}, "n3": {"ansible_host": "::1"}}


def files(facts: dict[str, Any] = FACTS, me: str = "n1", hostvars: Any = HOSTVARS) -> dict[str, dict[str, Any]]:
    wanted = mesh_files(facts, hostvars, {name: NAMES[name] for name in facts}, ["n1", "n2", "n3"], me, 5870)
    return {one["path"].rpartition("/")[2]: one for one in wanted}


def test_a_peer_comes_in_from_its_own_addresses_only() -> None:
    routes = {"n1": {"interface": "eth1", "source": "10.1.0.2"}, "n3": {"error": "no route"}}
    facts = {**FACTS, "n2": fact(2, network={"cluster": {"address": "10.0.0.2"}, "routes": routes})}
    lines = files(facts)["authorized_keys"]["pieces"]
    assert lines["n2"] == (
        'from="10.0.0.2,10.1.0.2,192.0.2.2",restrict,pty,port-forwarding,permitopen="127.0.0.1:5870",'
        'permitlisten="127.0.0.1:5870" ssh-ed25519 AAAA2 ringmaster n2\n'
    )
    # A node reaches itself too, and the operator's tunnel on a loopback address is nobody's address.
    assert lines["n1"].startswith('from="10.0.0.1",')
    assert lines["n3"].startswith('from="10.0.0.3",')


def test_keys_made_in_this_run_count_and_missing_ones_keep_their_line() -> None:
    facts = {**FACTS, "n2": fact(2, public_key=None), "n3": fact(3, public_key=None)}
    hostvars = {**HOSTVARS, "n2": {"ssh_mesh_key": {"public_key": KEY.format("new")}}, "n3": {"ssh_mesh_key": {}}}
    lines = files(facts, hostvars=hostvars)["authorized_keys"]["pieces"]
    assert "AAAAnew ringmaster n2\n" in lines["n2"]
    assert lines["n3"] is None


def test_host_keys_by_all_names_and_real_ports() -> None:
    facts = {**FACTS, "n2": fact(2, ssh={"port": 2222}, firewall={"ports": [22, 2222]})}
    known = files(facts)["ssh_known_hosts"]["pieces"]
    assert known["n1"] == "n1,10.0.0.1 ssh-ed25519 HOST1\n"
    assert known["n2"] == (
        "n2,gpu2,10.0.0.2,192.0.2.2,[n2]:2222,[gpu2]:2222,[10.0.0.2]:2222,[192.0.2.2]:2222 ssh-ed25519 HOST2\n"
    )


def test_ssh_is_told_port_and_where_it_differs_the_user() -> None:
    facts = {**FACTS, "n2": fact(2, ssh={"port": 2222}, user={"name": "ubuntu", "home": "/home/ubuntu"})}
    config = files(facts)["ringmaster.conf"]["pieces"]
    assert "Host n2 gpu2 10.0.0.2 192.0.2.2\n    HostName 10.0.0.2\n    Port 2222\n" in config["n2"]
    assert config["n2"].endswith("Match localuser ops originalhost n2,gpu2,10.0.0.2,192.0.2.2\n    User ubuntu\n")
    assert "User" not in config["n3"]
    assert "IdentityFile ~/.ssh/ringmaster_ed25519\n" in config["n3"]


def test_without_ssh_the_listening_port_counts() -> None:
    facts = {**FACTS, "n2": fact(2, ssh=None, firewall={"ports": [2022]}), "n3": fact(3, ssh=None, firewall={})}
    config = files(facts)["ringmaster.conf"]["pieces"]
    assert "Port 2022\n" in config["n2"]
    assert "Port 22\n" in config["n3"]


def test_cloned_nodes_are_refused_at_the_later_one() -> None:
    facts = {**FACTS, "n2": fact(2, public_key=KEY.format(1))}
    files(facts, me="n1")
    files(facts, me="n3")
    with pytest.raises(ValueError, match="n2 has the same key as n1"):
        files(facts, me="n2")


def test_a_partner_is_tried_by_all_its_places_the_node_itself_first() -> None:
    assert mesh_targets(FACTS, NAMES, ["n1", "n2", "n3"], "n2") == [
        ["n2", "gpu2", "10.0.0.2"], ["n3", "10.0.0.3"], ["n1", "10.0.0.1"],
    ]  # fmt: skip
    assert mesh_targets({"n1": FACTS["n1"]}, NAMES, ["n1", "n2"], "n1") == [["n1", "10.0.0.1"]]


def rounds(count: int) -> tuple[list[str], dict[str, list[str]]]:
    """A cluster's nodes, and the partners of each."""
    names = [f"m{number}" for number in range(count)]
    facts = {name: fact(number) for number, name in enumerate(names)}
    return names, {name: mesh_partners(facts, names, name) for name in names}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_few_nodes_try_all_pairs_each_serving_one_login_in_a_round(count: int) -> None:
    names, partners = rounds(count)
    for tried in partners.values():
        assert sorted(tried) == names
    for turn in range(count):
        assert len({tried[turn] for tried in partners.values()}) == count


@pytest.mark.parametrize("count", [9, 16, 24, 32, 100])
def test_many_nodes_try_a_few_each_and_the_first_all(count: int) -> None:
    names, partners = rounds(count)
    head, *others = names
    assert sorted(partners[head]) == sorted(names)
    most = 2 + (count - 1).bit_length()
    for name in others:
        tried = partners[name]
        assert tried[0] == name
        assert head in tried
        assert len(tried) == len(set(tried)) <= most
        asking = [one for one in others if name in partners[one] and one != name]
        assert 1 <= len(asking) <= most  # tried as a server too, not by the head alone
        assert names[(names.index(name) + 1) % count] in tried  # with its neighbour: the tried pairs hang together
        turns = [(names.index(one) - names.index(name)) % count for one in tried]
        assert turns == sorted(turns)  # a round is one distance: nobody serves two in it
    assert sum(map(len, partners.values())) <= count * (most + 2)


def test_24_nodes_log_in_180_times() -> None:
    assert sum(len(tried) for tried in rounds(24)[1].values()) == 180  # docs/performance.md says so


def test_nodes_that_were_not_looked_at_are_nobodys_partners() -> None:
    names = [f"m{number}" for number in range(12)]
    facts = {name: fact(number) for number, name in enumerate(names) if name not in {"m0", "m5"}}
    facts["m7"] = fact(7, network={"cluster": {"address": None}, "routes": {}})
    partners = {name: mesh_partners(facts, names, name) for name in facts if name != "m7"}
    assert len(partners["m1"]) == 9  # the first that is there
    assert not {"m0", "m5", "m7"} & {one for tried in partners.values() for one in tried}


def present(wanted: list[dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """What the probe shows of a node once these are written."""
    return {one["path"]: {"text": one["text"], "mode": one["mode"], "owner": one["owner"]} for one in wanted}


def test_what_is_so_is_not_written_again() -> None:
    first = changed_files(files().values(), {})
    assert [one["path"] for one in first] == [
        "/home/ops/.ssh/authorized_keys", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_config.d/ringmaster.conf",
    ]  # fmt: skip
    assert all(set(one) <= {"path", "text", "how", "top", "mode", "owner", "folder_mode"} for one in first)
    assert changed_files(files().values(), present(first)) == []


def test_nodes_that_are_not_looked_at_keep_their_lines() -> None:
    there = present(changed_files(files().values(), {}))
    assert changed_files(files({name: FACTS[name] for name in ("n1", "n3")}).values(), there) == []
    again = {**FACTS, "n2": fact(2, host_keys=["ssh-ed25519 ANEW"], public_key=KEY.format("anew"))}
    assert [one["path"] for one in changed_files(files(again).values(), there)] == [
        "/home/ops/.ssh/authorized_keys", "/etc/ssh/ssh_known_hosts",
    ]  # fmt: skip


def test_nodes_that_left_the_inventory_vanish() -> None:
    there = present(changed_files(files().values(), {}))
    left = {name: FACTS[name] for name in ("n1", "n2")}
    changed = changed_files(mesh_files(left, HOSTVARS, NAMES, ["n1", "n2"], "n1", 5870), there)
    assert len(changed) == 3
    assert not any("n3" in one["text"] or "10.0.0.3" in one["text"] for one in changed)


def test_mode_and_owner_count_for_files_of_ours_only() -> None:
    ours, block = {"path": "/a", "text": "x"}, {"path": "/b", "text": "x", "how": "block"}
    there = {"text": "x\n", "mode": "0600", "owner": "ops"}
    assert [one["path"] for one in changed_files([ours, block], {"/a": there, "/b": there})] == ["/a"]


def test_json_keys_and_empty_blocks() -> None:
    keys = {"path": "/a", "text": '{"x": 1}', "how": "json"}
    there = {"text": '{"y": 2, "x": 1}', "mode": "0600", "owner": "root"}
    assert changed_files([keys], {"/a": there}) == []
    assert len(changed_files([keys], {"/a": {**there, "text": "broken"}})) == 1
    assert len(changed_files([keys], {})) == 1
    empty = {"path": "/b", "text": "", "how": "block"}
    assert changed_files([empty], {"/b": {**there, "text": None}}) == []
    assert len(changed_files([empty], {"/b": there})) == 1


def test_what_was_proved_says_what_was_not_tried() -> None:
    more = {"gpus": [], "image": None, "engine": {"version": "28"}}
    facts = {
        name: {**fact, **more, "network": {"cluster": {"interface": "eth0", **fact["network"]["cluster"]}}}
        for name, fact in FACTS.items()
    }
    n2 = ["n2", "n3", "n1"]
    assert "reaches 2 others by SSH, " in proved(facts, FACTS, "n2", n2)
    two = {name: facts[name] for name in ("n2", "n3")}
    assert "reaches 1 of 2 others by SSH (not looked at: n1), " in proved(two, FACTS, "n2", n2[:2])
    assert ", alone, " in proved(two, ["n2"], "n2", ["n2"])
    many = [f"m{number}" for number in range(9)]
    assert (
        "reaches 0 of 9 others by SSH (not looked at: m0, m1, m2, m3, m4 and 4 more)"
        in proved(two, [*many, "n2"], "n2", ["n2"])
    )  # fmt: skip
    assert "reaches 1 of 2 others by SSH (a sample), " in proved(facts, FACTS, "n2", ["n2", "n3"])
    assert "reaches 1 of 3 others by SSH (a sample; not looked at: m0), " in proved(
        facts, ["m0", *FACTS], "n2", ["n2", "n3"]
    )
