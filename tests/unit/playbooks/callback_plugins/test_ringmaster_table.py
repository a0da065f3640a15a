"""The callback plugin: one line per node at the end, for people and for the launcher."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ringmaster_table as table

PLUGINS = Path(table.__file__).parent
TASKS = """
- hosts: nodes
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.set_fact: {ringmaster_line: "GPU 2"}
    - name: Change
      ansible.builtin.command: "true"
      changed_when: inventory_hostname == "b"
    - name: Never mind
      block:
        - name: Go wrong
          ansible.builtin.fail: {msg: expected}
      rescue:
        - name: Mend it
          ansible.builtin.debug: {msg: mended}
    - name: Break
      ansible.builtin.fail: {msg: "no space left\\nand more"}
      when: inventory_hostname == "c"
"""


def play(folder: Path, name: str, tasks: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run ansible-playbook on three hosts that are this machine, from another folder than the playbook's."""
    (folder / name).write_text(tasks)
    (folder / "callback_plugins").symlink_to(PLUGINS)
    (folder / "hosts.yml").write_text(
        "nodes: {hosts: {a: , b: , c: }, vars: {ansible_connection: local, "
        f"ansible_python_interpreter: {sys.executable}}}}}\n"
    )
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", folder / "hosts.yml", folder / name]
    return subprocess.run(
        command, cwd="/", env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


def test_people_get_a_table_when_something_is_not_fine(tmp_path: Path) -> None:
    done = play(tmp_path, "site.yml", TASKS)
    assert done.returncode == 2
    lines = done.stdout[done.stdout.index("NODES ***") :].splitlines()[1:4]
    assert lines == ["a  ok", "b  changed 1", "c  failed       Break: no space left"]


def test_the_launcher_gets_json_and_notes(tmp_path: Path) -> None:
    tasks = TASKS.split("    - name: Break")[0]
    result, notes = tmp_path / "result", tmp_path / "notes"
    done = play(tmp_path, "verify.yml", tasks, RINGMASTER_RESULT=str(result), RINGMASTER_PROGRESS=str(notes))
    assert (done.returncode, "NODES ***" in done.stdout) == (0, False), done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert (found["playbook"], found["refused"]) == ("verify.yml", False)
    assert found["nodes"]["b"] == {"state": "changed", "changed": 1, "why": ""}
    kinds = [tuple(line.split("\t")[1:]) for line in notes.read_text().splitlines()]
    assert kinds[0] == ("task", "Look") and kinds.count(("begin", "a")) == kinds.count(("end", "a")) == 4


def test_the_silent_callback_leaves_errors_and_the_result(tmp_path: Path) -> None:
    result = tmp_path / "result"
    done = play(
        tmp_path, "verify.yml", TASKS, RINGMASTER_RESULT=str(result), ANSIBLE_STDOUT_CALLBACK="ringmaster_silent"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    assert json.loads(result.read_text())["nodes"]["c"]["why"] == "Break: no space left"
    again = tmp_path / "broken"
    again.mkdir()
    done = play(again, "verify.yml", "- hosts: [", ANSIBLE_STDOUT_CALLBACK="ringmaster_silent")
    assert done.returncode != 0 and "YAML parsing failed" in done.stderr


class _Named:
    def __init__(self, name: str) -> None:
        self._name = name

    def get_name(self) -> str:
        return self._name


class _Result:
    def __init__(self, host: str, **result: Any) -> None:
        self.host, self.task, self.result = _Named(host), _Named("preflight : Judge"), result


class _Stats:
    def __init__(self, **counts: dict[str, int]) -> None:
        self.processed = dict.fromkeys(counts, 1)
        self._counts = counts

    def summarize(self, name: str) -> dict[str, int]:
        return {"changed": 0, "failures": 0, "unreachable": 0, **self._counts[name]}


def test_refused_lines_and_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGMASTER_RESULT", str(tmp_path / "result"))
    plugin = table.CallbackModule()
    plugin.v2_runner_on_ok(_Result("a", ringmaster_line="4 GPUs"))
    plugin.v2_runner_on_ok(_Result("d"))
    # One node carries the check out for all: what it says is about others.
    plugin.v2_runner_on_failed(_Result("a", msg="b: no sudo", ringmaster_refused={"b": "no sudo: mend it"}))
    plugin.v2_runner_on_failed(_Result("d", msg="ignored"), ignore_errors=True)
    plugin.v2_runner_on_unreachable(_Result("c", msg="Failed to connect: Connection timed out"))
    plugin.v2_playbook_on_stats(_Stats(a={"failures": 1}, b={}, c={"unreachable": 1}, d={}))
    found = json.loads((tmp_path / "result").read_text())
    assert found["refused"]
    assert {name: (row["state"], row["why"]) for name, row in found["nodes"].items()} == {
        "a": ("ok", "nothing wrong here; not touched, because another node was refused"),
        "b": ("refused", "no sudo: mend it"),
        "c": ("unreachable", "timed out"),
        "d": ("ok", "nothing wrong here; not touched, because another node was refused"),
    }


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ({"msg": "plain"}, "plain"),
        ({"msg": ["one", "two"]}, "one; two"),
        ({"msg": "non-zero return code", "stderr": "x\nthe cause\n"}, "non-zero return code: the cause"),
        (
            {"msg": "MODULE FAILURE\nSee stdout", "module_stderr": "Traceback\nOSError: full"},
            "MODULE FAILURE: OSError: full",
        ),
        ({"msg": "One or more items failed", "results": [{}, {"failed": True, "msg": "second item"}]}, "second item"),
        ({}, "no reason given"),
        (
            {"msg": "Task failed: Missing sudo password"},
            "sudo wants a password there: ASK=sudo asks for it once; ansible_become_password in a file that Ansible "
            "Vault encrypts gives it unattended (docs/provision.md, Passwords)",
        ),
        (
            {"msg": "Task failed: Incorrect sudo password"},
            "sudo refused the password: type another with ASK=sudo, or correct ansible_become_password",
        ),
    ],
)
def test_the_line_that_says_most(result: dict[str, Any], line: str) -> None:
    assert table.failure(result) == line


def test_a_nodes_words_do_not_steer_the_terminal() -> None:
    assert table.short("\x1b]0;fine\x07 \x9b2J\tso") == r"\x1b]0;fine\x07 \x9b2J so"


def test_lines_are_short() -> None:
    assert table.short("\n  first \t line\nsecond") == "first line"
    long = table.short("what it is " + "x" * 999 + " how to mend it")
    assert long.startswith("what it is")
    assert long.endswith("how to mend it")
    assert len(long) < 450
    assert table.unreachable("Data could not be sent. Permission denied (publickey).").startswith("no key was accepted")
    assert table.unreachable("who knows") == "who knows"
