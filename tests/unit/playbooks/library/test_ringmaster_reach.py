"""Logins at other nodes: one after the other, a second try for what may pass, and names that lead to the same node."""

from pathlib import Path

import pytest
import ringmaster_reach

SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do [ "$1" != -G ] || shown=1; shift; done
place=$2
if [ "$shown" ]; then
    case $place in odd) user=eve;; *) user=ops;; esac
    printf 'user %s\\nhostname 10.0.0.2\\nport 22\\nhost %s\\n' $user "$place"
    exit
fi
echo "$place" >>"$LOGINS"
case $place in
    busy) [ "$(grep -c busy "$LOGINS")" -gt 1 ] || { echo "Connection closed by 10.0.0.2 port 22" >&2; exit 255; };;
    shut) echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255;;
    denied) echo "ops@denied: Permission denied (publickey)." >&2; exit 255;;
    dumb) exit 124;;
esac
"""


@pytest.fixture
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The logins, in order, at what is not there; a program in ssh's place answers for the nodes."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("LOGINS", str(tmp_path / "logins"))
    monkeypatch.setattr(ringmaster_reach, "_PAUSE_S", 0.0)
    return tmp_path / "logins"


def test_a_node_is_logged_in_at_once_whatever_its_names(logins: Path) -> None:
    assert ringmaster_reach.reach([["n1", "10.0.0.1"], ["n2", "gpu2", "10.0.0.2"]], 5) == []
    assert logins.read_text().split() == ["n1", "n2"]


def test_a_login_that_is_turned_away_is_tried_once_more_after_the_others(logins: Path) -> None:
    assert ringmaster_reach.reach([["busy"], ["n1"], ["n2"]], 5) == []
    assert logins.read_text().split() == ["busy", "n1", "n2", "busy"]


def test_a_node_that_fails_twice_is_named_and_what_cannot_pass_is_not_tried_again(logins: Path) -> None:
    assert ringmaster_reach.reach([["shut"], ["denied"], ["dumb"], ["n1"]], 5) == [
        "shut: kex_exchange_identification: Connection closed by remote host",
        "denied: ops@denied: Permission denied (publickey).",
        "dumb: no answer in 10 s",
    ]
    assert logins.read_text().split() == ["shut", "denied", "dumb", "n1", "shut", "dumb"]


def test_a_name_that_leads_elsewhere_is_a_failure(logins: Path) -> None:
    assert ringmaster_reach.reach([["n2", "odd", "10.0.0.2"]], 5) == ["odd: ssh goes another way there than to n2"]
