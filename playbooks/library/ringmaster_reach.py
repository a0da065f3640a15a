#!/usr/bin/python
"""Ansible module: logs in at other nodes by SSH as the user who runs it, trusting only the machine's own host keys."""

from __future__ import annotations

import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

# The user's own files don't count, only the machine's pinned keys.
_SSH = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=none"]
# What no second try mends. One more failed login would only make fail2ban and sshd's own penalties count it.
_LASTING = ("Permission denied", "Host key verification failed", "Too many authentication failures")
# What makes two words the same way to a node, of all that `ssh -G` shows.
_WAY = ("hostname ", "port ", "user ", "hostkeyalias ", "identityfile ", "proxyjump ", "proxycommand ")
# Before the second try: sshd turns logins away at random while many are open (MaxStartups), and all nodes try at once.
_PAUSE_S = 2.0


def reach(targets: list[list[str]], seconds: int) -> list[str]:
    """Log in at each target, one after the other; return why those can't be reached that failed twice.

    A target is all the names and addresses of one node. It is logged in at by the first; ssh must go the same way to
    the others, which it says without a login.
    """
    failed = {places[0]: problem for places in targets if (problem := log_in(places[0], seconds))}
    again = [place for place, problem in failed.items() if not any(words in problem for words in _LASTING)]
    if again:
        time.sleep(_PAUSE_S)
    for place in again:
        failed[place] = log_in(place, seconds)
    problems = [f"{place}: {problem}" for place, problem in failed.items() if problem]
    for first, *others in targets:
        if others:
            way = way_to(first)
            elsewhere = [place for place in others if way_to(place) != way]
            problems += [f"{place}: ssh goes another way there than to {first}" for place in elsewhere]
    return problems


def log_in(place: str, seconds: int) -> str:
    """Return why the login fails; empty if it works."""
    done = subprocess.run(
        ["timeout", str(seconds * 2), *_SSH, "-o", f"ConnectTimeout={seconds}", "--", place, "true"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"no answer in {seconds * 2} s"


def way_to(place: str) -> list[str]:
    """Return what ssh would use to reach `place`."""
    done = subprocess.run([*_SSH, "-G", "--", place], capture_output=True, text=True, errors="replace", check=False)
    return [line for line in done.stdout.splitlines() if line.startswith(_WAY)]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "targets": {"type": "list", "elements": "list", "required": True},
            "seconds": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    targets = module.params["targets"]
    problems = reach(targets, module.params["seconds"])
    if problems:
        fix = "run provision again, or look at the network between them"
        module.fail_json(msg=f"can't log in from here at {'; '.join(problems)}: {fix}", problems=problems)
    module.exit_json(changed=False, reached=[places[0] for places in targets])


if __name__ == "__main__":
    main()
