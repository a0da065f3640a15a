"""Runs on a node (its Python, nothing else): prints how it is as one JSON object."""

import hashlib
import json
import os
import re
import stat
import subprocess

PLACES = ("/etc", "/root", "/home", "/usr/local", "/opt", "/srv", "/var/lib/ringmaster", "/var/spool/cron")
COMMANDS = {
    "ufw": ["ufw", "status", "verbose"],
    "holds": ["apt-mark", "showhold"],
    "manual": ["apt-mark", "showmanual"],
    "rules": ["iptables-save"],
    "rules6": ["ip6tables-save"],
    "groups": ["getent", "group"],
    "users": ["getent", "passwd"],
    "links": ["ip", "-br", "link"],
    "forwarding": ["cat", "/proc/sys/net/ipv4/ip_forward"],
    "failed units": ["systemctl", "--failed", "--no-legend", "--plain"],
}
LISTS = {
    "package": ["dpkg-query", "-W", "-f", "${Package}\t${Version} ${db:Status-Abbrev}\n"],
    "unit": ["systemctl", "list-unit-files", "--no-legend", "--plain"],
    "active": ["systemctl", "list-units", "--no-legend", "--plain", "--type=service,socket,timer", "--state=active"],
}


def output(words):
    return subprocess.run(words, capture_output=True, text=True).stdout


def describe(path):
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    shown = f"{stat.filemode(found.st_mode)} {mode:o} {found.st_uid}:{found.st_gid}"
    if stat.S_ISLNK(found.st_mode):
        return f"{shown} -> {os.readlink(path)}"
    if stat.S_ISREG(found.st_mode):
        with open(path, "rb") as file:
            return f"{shown} {hashlib.sha256(file.read()).hexdigest()[:16]}"
    return shown


def rules(text):
    """Rules without packet counts, and without those by which a lab node's outer engine answers its DNS.

    A table that a test's fault has used stays in the kernel, without a rule.
    """
    text = re.sub(r"\*raw\n(:\w+ ACCEPT .*\n)+COMMIT\n", "", text)
    lines = [line.split("] ")[-1] if line.startswith("[") else line.split(" [")[0] for line in text.splitlines()]
    return "\n".join(line for line in lines if line[0] != "#" and "127.0.0.11" not in line)


def links(text):
    """The cards without the numbers of their other ends, which a reboot changes."""
    return "\n".join(sorted(" ".join([line.split("@")[0].split()[0], *line.split()[1:]]) for line in text.splitlines()))


seen = {}
for place in PLACES:
    for folder, folders, files in os.walk(place):
        for name in [".", *files, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]:
            path = folder if name == "." else os.path.join(folder, name)
            seen[f"file {path}"] = describe(path)
for key, words in COMMANDS.items():
    shorten = {"rules": rules, "rules6": rules, "links": links}.get(key, str)
    seen[key] = shorten(output(words))
for key, words in LISTS.items():
    for line in output(words).splitlines():
        if " transient " in line:  # a login's session: no file, and another one each time
            continue
        name, _, rest = line.partition("\t" if key == "package" else " ")
        seen[f"{key} {name}"] = "active" if key == "active" else " ".join(rest.split())
print(json.dumps(seen))
