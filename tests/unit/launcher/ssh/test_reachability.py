"""What ssh's words mean."""

import pytest

from launcher.base.parallel import Done, run_all
from launcher.ssh.known_hosts import pinning_options
from launcher.ssh.reachability import judge, try_all
from launcher.ssh.refusals import State, explain
from tests.support.cluster.sshd import Place

CHANGED = """\
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ED25519 key sent by the remote host is
SHA256:abc.
Host key for 10.0.0.1 has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ("ssh: Could not resolve hostname gpu9: Name or service not known", State.DOWN, "the name gpu9 is not known"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", State.DOWN, "timed out"),
        ("Connection timed out during banner exchange", State.DOWN, "timed out"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused", State.DOWN, "connection refused"),
        ("ssh: connect to host 10.0.0.1 port 22: No route to host", State.DOWN, "no route"),
        ("Connection to 10.0.0.1 port 22 timed out", State.DOWN, "timed out"),
        ("channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host", State.DOWN, "connection refused"),
        ("nc: connect to 10.0.0.1 port 22 (tcp) failed: Connection refused\n"
         "kex_exchange_identification: Connection closed by remote host", State.DOWN, "connection refused"),
        ("channel 0: open failed: connect failed: Name or service not known\r\nstdio forwarding failed\r\n"
         "Connection closed by UNKNOWN port 65535", State.DOWN,
         "its jump host can't connect to it (connect failed: Name or service not known); see ansible_host"),
        ("channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host", State.DOWN, "AllowTcpForwarding"),
        ("me@jump: Permission denied (publickey,password).\r\nConnection closed by UNKNOWN port 65535\r",
         State.DENIED, "its jump host accepted no key for me@jump"),
        ("nc: connect to 10.0.0.1 port 22 (tcp) failed: Connection refused\n"
         "Connection closed by UNKNOWN port 65535", State.DOWN, "connection refused"),
        ("sh: 1: exec: corkscrew: not found\nConnection closed by UNKNOWN port 65535",
         State.DOWN, "its ProxyCommand fails: sh: 1: exec: corkscrew: not found"),
        ("debug1: load_hostkeys: fopen /k: No such file or directory\nConnection closed by UNKNOWN port 65535",
         State.DOWN, "too many logins at once (MaxStartups)"),
        ("Could not create directory '/.ssh' (No such file or directory).\r\nConnection closed by 10.0.0.9 port 22\n"
         "Connection closed by UNKNOWN port 65535", State.DOWN, "too many logins at once (MaxStartups)"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
         State.DENIED, "too many keys"),
        ("ops@10.0.0.1: Permission denied (publickey).", State.DENIED, "no key was accepted for user ops"),
        ("Permission denied, please try again.", State.DENIED, "no key was accepted; see ansible_user"),
        ("no such identity: /k: No such file\nops@h: Permission denied (publickey).", State.DENIED, "user ops"),
        ("Warning: Identity file /k not accessible: No such file or directory.\nops@h: Permission denied (publickey).",
         State.DENIED, "the private key /k is not there"),
        ("@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\nops@h: Permission denied (publickey).",
         State.DENIED, "open to others"),
        ("No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\n"
         "Host key verification failed.", State.UNKNOWN, "its host key is not known"),
        (CHANGED, State.CHANGED, "its host key is not the pinned one"),
        ("Host key verification failed.\nkex_exchange_identification: Connection closed by remote host",
         State.UNKNOWN, "a host key on the way"),
        ("kex_exchange_identification: read: Connection reset by peer", State.DOWN, "sshd closed the connection"),
        ('"System is booting up. Unprivileged users are not permitted to log in yet. Please come back later. For '
         'technical details, see pam_nologin(8)."\nConnection closed by 10.0.0.1 port 22',
         State.DOWN, "it is starting up or shutting down"),
        ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22",
         State.DOWN, "too many logins at once (MaxStartups)"),
        ("kex_exchange_identification: banner line 0: Not allowed at this time", State.DOWN, "PerSourcePenalties"),
        ("kex_exchange_identification: banner line contains invalid characters", State.DOWN, "doesn't speak SSH"),
        ("something new", State.DOWN, "something new"),
        ("", State.DOWN, "ssh gave no reason"),
    ],
)  # fmt: skip
def test_refusals(said: str, state: State, reason: str) -> None:
    answer = judge(Done(code=255, out="", err=said))
    assert answer.state is state
    assert reason in answer.reason and "\n" not in answer.reason


BANNER = """\
Access with permission denied will be reported. Permission denied means Permission denied.
Sessions are timed out; Connection refused, No route to host, Too many authentication failures: call us.
Connection closed by policy. WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! REVOKED HOST KEY
UNPROTECTED PRIVATE KEY FILE! bad permissions, Identity file x not accessible, Host key verification failed.
Could not resolve hostname x: No host key is known for you. Exceeded MaxStartups, kex_exchange_identification
"""


def test_only_lines_of_sshs_own_count(place: Place) -> None:
    """What sshd shows before the login is the node's text: `ssh` prints it among its own lines."""
    machine = place.machine()
    place.pin(machine.port, machine.key)
    machine.banner = BANNER
    host = place.host(machine.port, user="nobody")
    answer = try_all([host], {host.name: host.ssh.options(pinning_options(place.pins))})[host.name]
    assert BANNER.splitlines()[0] in answer.stderr
    assert (answer.state, answer.reason.partition(";")[0]) == (State.DENIED, "no key was accepted for user nobody")


def test_a_banner_alone_explains_nothing() -> None:
    assert explain(BANNER) is None


def test_answers_that_are_not_sshs() -> None:
    assert judge(Done(code=0, out="", err="Welcome")).state is State.OK
    assert judge(Done(code=1, out="", err="This account is not available.")).state is State.DENIED
    assert judge(Done(code=None, out="", err="")).state is State.DOWN


def test_one_slow_program_does_not_hide_the_others() -> None:
    slow, quick = run_all([("sh", "-c", "sleep 60 & sleep 60"), ("sh", "-c", "echo there; exit 3")], limit_s=2.0)
    assert slow.code is None
    assert (quick.code, quick.out) == (3, "there\n")


def test_a_helper_left_behind_is_not_waited_for() -> None:
    (done,) = run_all([("sh", "-c", "sleep 60 & exit 4")], limit_s=2.0)
    assert done.code == 4
