"""Ansible callback: shows one line per node at the end of a playbook, with its outcome and the reason.

It reads from tasks' results:
- `ringmaster_refused`: a check refused these nodes (the reason by node; a reason for all of them under `all`), and
  nothing was touched anywhere;
- `ringmaster_line: "…"`: the text of the node's line.

It reads from the environment, which the launcher sets:
- RINGMASTER_RESULT: a file that the lines are written to as JSON, instead of printing them;
- RINGMASTER_PROGRESS: a file that the begin of each task and the begin and end of each node are appended to at once.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: ringmaster_table
type: aggregate
short_description: one line per node at the end of a playbook
description:
  - Prints each node's outcome and its reason when something is wrong, and after verify.yml always.
"""

_LONGEST = 400
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNREACHABLE = (
    (r"HOST IDENTIFICATION HAS CHANGED", "its host key is not the pinned one: never accept that unseen"),
    (r"host key is known|Host key verification failed", "its host key is not known; make provision asks about it"),
    (r"Permission denied", "no key was accepted; set ansible_user, ansible_ssh_private_key_file"),
    (r"Could not resolve hostname", "its name is not known here; set ansible_host"),
    (r"waiting for privilege escalation", "no answer on an open connection: it is down, or run it again in a minute"),
    (r"timed out", "timed out"),
    (r"Connection refused", "connection refused"),
    (r"No route to host|Network is unreachable", "no route to it from here"),
    (r"closed by|[Bb]roken pipe|reset by peer|closed\.|Data could not be sent", "the connection was lost"),
)
_SUDO = (
    (
        r"Missing sudo password|sudo: a password is required",
        "sudo wants a password there: ASK=sudo asks for it once; ansible_become_password in a file that Ansible Vault "
        "encrypts gives it unattended (docs/provision.md, Passwords)",
    ),
    (
        r"Incorrect sudo password",
        "sudo refused the password: type another with ASK=sudo, or correct ansible_become_password",
    ),
)
_EMPTY = ("non-zero return code", "MODULE FAILURE", "One or more items failed", "All items completed")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Ansible finds it beside the playbooks and calls it as the playbook goes on."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ringmaster_table"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._playbook = ""
        self._nodes: list[str] = []
        self._reasons: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        path = os.environ.get("RINGMASTER_PROGRESS")
        self._progress = open(path, "a", buffering=1, encoding="utf-8") if path else None  # noqa: SIM115,PTH123

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = Path(playbook._file_name).name

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        self._tell("task", task.get_name())

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._tell("task", task.get_name())

    def v2_runner_on_start(self, host: Any, task: Any) -> None:  # noqa: ARG002
        if host.get_name() not in self._nodes:
            self._nodes.append(host.get_name())
        self._tell("begin", host.get_name())

    def v2_runner_on_ok(self, result: Any) -> None:
        self._take(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._tell("end", result.host.get_name())

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        name = self._take(result)
        if not ignore_errors:
            self._reasons[name] = short(f"{result.task.get_name()}: {failure(result.result)}")
            self._refused |= result.result.get("ringmaster_refused") or {}

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._reasons[self._take(result)] = short(unreachable(str(result.result.get("msg", ""))))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        names = self._nodes + [name for name in stats.processed if name not in self._nodes]
        table = {name: self._row(name, stats.summarize(name)) for name in names}
        path = os.environ.get("RINGMASTER_RESULT")
        if path:
            Path(path).write_text(
                json.dumps({"playbook": self._playbook, "refused": bool(self._refused), "nodes": table})
            )
        elif table and (self._playbook == "verify.yml" or any(row["state"] not in FINE for row in table.values())):
            self._print(table)

    def _row(self, name: str, summary: Mapping[str, int]) -> dict[str, Any]:
        if self._refused and not summary["unreachable"]:
            return self._refusal(name)
        if summary["unreachable"]:
            state = "unreachable"
        elif summary["failures"]:
            state = "failed"
        else:
            state = "changed" if summary["changed"] else "ok"
        why = self._lines.get(name, "")
        if state not in FINE:
            why = why or self._reasons.get(name, "")
        return {"state": state, "changed": summary["changed"], "why": why}

    def _refusal(self, name: str) -> dict[str, Any]:
        """Return the row where a check refused: the node's own reason, or that another node was refused."""
        why = self._refused.get(name) or self._refused.get("all")
        fine = "nothing wrong here; not touched, because another node was refused"
        return {"state": "refused" if why else "ok", "changed": 0, "why": short(why or fine)}

    def _take(self, result: Any) -> str:
        name = str(result.host.get_name())
        self._tell("end", name)
        if result.result.get("ringmaster_line"):
            self._lines[name] = short(str(result.result["ringmaster_line"]))
        return name

    def _tell(self, what: str, name: str) -> None:
        if self._progress:
            self._progress.write(f"{time.time():.1f}\t{what}\t{' '.join(name.split())}\n")

    def _print(self, table: Mapping[str, Mapping[str, Any]]) -> None:
        self._display.banner("NODES")
        width = max(len(name) for name in table)
        for name, row in table.items():
            count = f" {row['changed']}" if row["state"] == "changed" else ""
            colour = {"ok": "green", "changed": "yellow"}.get(row["state"], "red")
            self._display.display(f"{name:{width}}  {row['state'] + count:11}  {row['why']}".rstrip(), color=colour)


FINE = ("ok", "changed")


def failure(result: Mapping[str, Any]) -> str:
    """Return the most telling line about why a task failed."""
    for item in result.get("results") or ():
        if isinstance(item, Mapping) and item.get("failed"):
            return failure(item)
    message = result.get("msg", "")
    text = "; ".join(map(str, message)) if isinstance(message, list) else str(message)
    refused = next((words for pattern, words in _SUDO if re.search(pattern, text)), "")
    if refused:
        return refused
    if "deserialization failed" in text:  # Ansible's words for a module that printed nothing
        return "the task was killed there, or its connection was lost: run it again"
    outputs = [str(result.get(key) or "").strip() for key in ("stderr", "module_stderr", "stdout", "module_stdout")]
    if not text.strip() or text.startswith(_EMPTY):
        more = next((each for each in outputs if each), "")
        last = more.splitlines()[-1] if more else ""
        return f"{text.strip().splitlines()[0]}: {last}" if text.strip() and last else last or text or "no reason given"
    return text


def unreachable(message: str) -> str:
    """Return why a node could not be reached, in a few words."""
    return next((words for pattern, words in _UNREACHABLE if re.search(pattern, message)), message)


def short(text: str) -> str:
    """Return the first line that isn't empty; of a very long one, its beginning and its end."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    line = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], line)  # a node's words must not steer the terminal
    half = _LONGEST // 2  # its beginning says what is wrong, its end has the remedy
    return line if len(line) <= _LONGEST else f"{line[:half]} … {line[-half:]}"
