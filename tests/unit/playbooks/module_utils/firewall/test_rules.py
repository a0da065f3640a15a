"""Our rules in ufw's files, and that they come out again without a trace."""

import base64

import pytest
from ansible.module_utils.ringmaster.firewall import rules

PEERS = {"node2": ["10.0.0.2", "fd00::2"], "node3": ["10.0.0.3"]}
DEFAULTS = '# ufw\nIPV6=yes\nDEFAULT_INPUT_POLICY="{policy}"\nDEFAULT_OUTPUT_POLICY="ACCEPT"\n'
RULES = """*filter
:ufw-user-input - [0:0]
### RULES ###
{rules}
### END RULES ###

### LOGGING ###
-A ufw-after-logging-input -j LOG
### END LOGGING ###
COMMIT
"""
OFFICE = """
### tuple ### allow tcp 22 0.0.0.0/0 any 192.0.2.0/24 in comment=6f6666696365
-A ufw-user-input -p tcp --dport 22 -s 192.0.2.0/24 -j ACCEPT
"""


def ufw(*, on: bool, policy: str = "DROP", own: str = OFFICE) -> rules.Files:
    return {
        rules.DEFAULTS: DEFAULTS.format(policy=policy),
        rules.CONF: f"# conf\nENABLED={'yes' if on else 'no'}\nLOGLEVEL=low\n",
        rules.RULES: RULES.format(rules=own),
        rules.RULES6: RULES.format(rules=""),
    }


def entry(before: rules.Files, written: rules.Files) -> dict[str, object]:
    states = {path: {"content": base64.b64encode((text or "").encode()).decode()} for path, text in before.items()}
    return {"before": states, "written": rules.record(written)}


def test_cluster_only_denies_and_lets_in_peers_and_ssh() -> None:
    new = rules.wanted(ufw(on=False, policy="ACCEPT"), "cluster_only", PEERS, [2222, 22])
    assert rules.enabled(new)
    assert rules.incoming(new) == "deny"
    assert rules.peers_let_in(new) == PEERS
    assert rules.ssh_ports(new) == [22, 2222]
    assert 'DEFAULT_OUTPUT_POLICY="ACCEPT"' in (new[rules.DEFAULTS] or "")


def test_rules_are_as_ufw_writes_them() -> None:
    new = rules.wanted(ufw(on=True, own=""), "cluster_only", {"node2": ["10.0.0.2", "fd00::2"]}, [])
    comment = "comment=72696e676d6173746572206e6f646532"
    four = f"### tuple ### allow any any 0.0.0.0/0 any 10.0.0.2 in {comment}\n-A ufw-user-input -s 10.0.0.2 -j ACCEPT\n"
    six = f"### tuple ### allow any any ::/0 any fd00::2 in {comment}\n-A ufw6-user-input -s fd00::2 -j ACCEPT\n"
    assert four in (new[rules.RULES] or "")
    assert six in (new[rules.RULES6] or "")


def test_ssh_is_not_widened_where_it_works_by_the_users_own_rules() -> None:
    new = rules.wanted(ufw(on=True), "cluster_only", PEERS, [22])
    assert rules.ssh_ports(new) == []
    assert OFFICE in (new[rules.RULES] or "")


def test_the_users_rules_are_asked_first() -> None:
    text = rules.wanted(ufw(on=False), "cluster_only", PEERS, [22])[rules.RULES] or ""
    assert text.index(OFFICE) < text.index("10.0.0.2")


def test_reject_is_denial_enough() -> None:
    assert rules.incoming(rules.wanted(ufw(on=True, policy="REJECT"), "cluster_only", PEERS, [22])) == "reject"


def test_without_ipv6_in_ufw_its_rules_stay() -> None:
    own = ufw(on=True)
    own[rules.DEFAULTS] = (own[rules.DEFAULTS] or "").replace("IPV6=yes", "IPV6=no")
    assert rules.wanted(own, "cluster_only", PEERS, [22])[rules.RULES6] == own[rules.RULES6]


def test_files_as_the_package_brings_them_have_no_end_mark() -> None:
    own = ufw(on=False)
    own[rules.RULES] = "*filter\n### RULES ###\n-A ufw-user-limit -j REJECT\nCOMMIT\n"
    new = rules.wanted(own, "cluster_only", PEERS, [22])
    assert rules.peers_let_in(new) == PEERS
    assert rules.theirs(new, None)[rules.RULES] == own[rules.RULES]


def test_foreign_rules_are_refused() -> None:
    own = ufw(on=True)
    own[rules.RULES] = "*filter\nCOMMIT\n"
    with pytest.raises(ValueError, match="ufw --force reset"):
        rules.wanted(own, "cluster_only", PEERS, [22])


@pytest.mark.parametrize("on", [True, False])
def test_disabled_changes_one_word(on: bool) -> None:
    own = ufw(on=on)
    assert rules.wanted(own, "disabled", PEERS, [22]) == ufw(on=False)
    assert rules.wanted(own, "keep", PEERS, [22]) == own


@pytest.mark.parametrize("policy", ["DROP", "ACCEPT"])
@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("mode", ["disabled", "cluster_only"])
def test_what_was_there_comes_back_byte_for_byte(mode: str, on: bool, policy: str) -> None:
    own = ufw(on=on, policy=policy)
    own[rules.CONF] = f"  # odd\n{own[rules.CONF]}".rstrip("\n")
    new = rules.wanted(own, mode, PEERS, [22])
    assert rules.theirs(new, entry(own, new)) == own


def test_what_the_user_has_changed_since_stays() -> None:
    own = ufw(on=False, policy="ACCEPT")
    new = rules.wanted(own, "cluster_only", PEERS, [22])
    edited = {**new, rules.RULES: rules.wanted(ufw(on=True), "cluster_only", PEERS, [22])[rules.RULES]}
    edited[rules.RULES] = (edited[rules.RULES] or "").replace("--dport 22 -s", "--dport 2222 -s")
    back = rules.theirs(edited, entry(own, new))
    assert "--dport 2222 -s" in (back[rules.RULES] or "")
    assert "ringmaster" not in str(rules.peers_let_in(back)) and not rules.ssh_ports(back)
    assert (rules.enabled(back), rules.incoming(back)) == (False, "allow")


def test_a_setting_that_the_user_has_changed_since_is_theirs() -> None:
    own = ufw(on=False, policy="ACCEPT")
    new = rules.wanted(own, "cluster_only", PEERS, [22])
    edited = {**new, rules.DEFAULTS: DEFAULTS.format(policy="REJECT")}
    assert rules.incoming(rules.theirs(edited, entry(own, new))) == "reject"


def test_a_change_that_was_never_confirmed_counts_for_nothing() -> None:
    stale, now = ufw(on=True), ufw(on=False)
    assert rules.theirs(now, {**entry(stale, stale), "written": None}) == now


def test_rules_go_with_their_node() -> None:
    both = rules.wanted(ufw(on=True), "cluster_only", PEERS, [])
    own = rules.theirs(both, None)
    assert rules.peers_let_in(rules.wanted(own, "cluster_only", {"node3": ["10.0.0.3"]}, [])) == {"node3": ["10.0.0.3"]}
