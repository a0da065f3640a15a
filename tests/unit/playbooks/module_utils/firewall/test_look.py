"""Where sshd listens, from the kernel's files, and what iptables' own list lacks."""

from pathlib import Path

from ansible.module_utils.ringmaster.firewall.live import not_let_in
from ansible.module_utils.ringmaster.firewall.look import listeners, sshd_ports

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(address: str, port: int, inode: int, state: str = "0A") -> str:
    rest = f"00000000:00000000 00:00000000 00000000     0        0 {inode} 1"
    return f"   0: {address}:{port:04X} 00000000:0000 {state} {rest}\n"


def test_listening_sockets_that_others_reach() -> None:
    table = HEAD + line("00000000", 22, 1) + line("0100007F", 6010, 2) + line("0B0A0A0A", 22, 3, "01")
    assert listeners(table) == {"1": 22}
    loopback, mapped = "0" * 24 + "01000000", "0" * 16 + "FFFF0000" + "0100007F"
    assert listeners(HEAD + line("0" * 32, 2222, 4) + line(loopback, 1, 5) + line(mapped, 1, 6)) == {"4": 2222}


def process(proc: Path, number: int, name: str, title: str, inode: int, root: Path) -> None:
    folder = proc / str(number)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_text(title)
    (folder / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (folder / "root").symlink_to(root)


def test_the_ports_are_those_of_this_machines_own_sshd(tmp_path: Path) -> None:
    proc, here, container = tmp_path / "proc", tmp_path / "here", tmp_path / "container"
    for folder in (proc / "net", proc / "self", here, container):
        folder.mkdir(parents=True)
    (proc / "self" / "root").symlink_to(here)
    lines = [line("00000000", port, inode) for port, inode in ((22, 1), (2222, 2), (80, 3), (9000, 4), (12345, 5))]
    (proc / "net" / "tcp").write_text(HEAD + "".join(lines))
    process(proc, 10, "sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", 1, here)
    process(proc, 11, "sshd", "/usr/sbin/sshd\0-D\0-p\0" + "2222\0", 2, here)
    process(proc, 12, "nginx", "nginx", 3, here)
    process(proc, 13, "sshd", "sshd: ops@notty", 4, here)
    process(proc, 14, "sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", 5, container)
    assert sshd_ports(str(proc)) == [22, 2222]


def test_iptables_must_know_each_peer() -> None:
    shown = "-P INPUT DROP\n-A ufw-user-input -s 10.0.0.2/32 -j ACCEPT\n"
    peers = {"node2": ["10.0.0.2", "fd00::2"], "node3": ["10.0.0.3"]}
    assert not_let_in(shown, peers, 4) == ["node3 (10.0.0.3)"]
    assert not_let_in("-P INPUT ACCEPT\n-A ufw6-user-input -s fd00::2/128 -j ACCEPT", peers, 6) == [
        "the deny-by-default of IPv6"
    ]
