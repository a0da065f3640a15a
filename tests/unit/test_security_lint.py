"""What keeps the security assertions that no run can show: ruff refuses code that would break them."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from launcher.base.paths import ROOT

# In which file of ours the code below would be; not all have the same rules.
PLACES = [
    "launcher/cluster/x.py", "launcher/on_node/x.py", "trainer/checkpoint/x.py", "playbooks/library/x.py",
    "playbooks/module_utils/ringmaster/core/x.py", "playbooks/filter_plugins/x.py", "lab/x.py", "benchmarks/x.py",
    "fabfile.py", "requirements/x.py",
]  # fmt: skip
REFUSED = {
    "import torch\ntorch.load('x')": "TID251",
    "import torch as t\nt.load('x', weights_only=False)": "TID251",
    "from torch import load\nload('x')": "TID251",
    "from torch.serialization import load as f\nf('x')": "TID251",
    "import numpy as np\nnp.load('x', allow_pickle=True)": "TID251",
    "import pickle\nclass Own(pickle.Unpickler): ...": "TID251",
    "import pickle\npickle.load(x)": "S301",
    "from pickle import loads\nloads(b'')": "S301",
    "import marshal\nmarshal.loads(b'')": "S302",
    "import hashlib\nhashlib.md5(b'')": "S324",
    "import yaml\nyaml.load('x')": "S506",
    "import subprocess\nsubprocess.run(f'ls {x}', shell=True)": "S602",
    "import os\nos.system(f'ls {x}')": "S605",
    "import paramiko\nc = paramiko.SSHClient()\nc.set_missing_host_key_policy(paramiko.WarningPolicy)": "S507",
    "import paramiko\nconnection.client.set_missing_host_key_policy(paramiko.WarningPolicy())": "TID251",
    "import tarfile\ntarfile.open('x').extractall('y')": "S202",
    "import socket\nsocket.create_server(('0.0.0.0', 1))": "S104",
    "import os\nos.chmod('x', 0o777)": "S103",
    "eval(x)": "S307",
}
# What may be justified where it stands, and how often it is: a new one is to be looked at here, too.
JUSTIFIED = {
    "TID251": {"trainer/checkpoint/state.py": 1, "trainer/data/published/formats.py": 1},
    "S301": {},
    "S324": {},
    "S602": {},
    "S507": {},
}


def findings(place: str, code: str) -> set[str]:
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", f"--stdin-filename={ROOT / place}", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, cwd=ROOT)
    return {finding["code"] for finding in json.loads(done.stdout)}


@pytest.mark.parametrize("place", PLACES)
def test_unsafe_code_is_refused_wherever_it_stands(place: str) -> None:
    code = "\n\n".join(REFUSED)
    assert findings(place, code) >= set(REFUSED.values())


@pytest.mark.parametrize(("code", "rule"), REFUSED.items(), ids=lambda one: one.splitlines()[-1])
def test_each_is_refused_by_its_rule(code: str, rule: str) -> None:
    assert rule in findings("trainer/checkpoint/x.py", code)


def justified(folder: Path = ROOT) -> dict[str, dict[str, int]]:
    """Return where code stands that these rules refuse, however it is excused: also by a `noqa` without a rule."""
    command = [sys.executable, "-m", "ruff", "check", "--ignore-noqa", f"--select={','.join(JUSTIFIED)}", "--exit-zero"]
    command += [f"--config={ROOT / 'pyproject.toml'}", "--output-format=json", "--exclude=tests", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Counter[str]] = {rule: Counter() for rule in JUSTIFIED}
    for finding in json.loads(done.stdout):
        found[finding["code"]][str(Path(finding["filename"]).relative_to(folder))] += 1
    return {rule: dict(places) for rule, places in found.items()}


@pytest.mark.parametrize(
    "code",
    ["torch.load('x')  # noqa", "torch.load('x')  # NOQA:TID251", "# ruff: noqa\ntorch.load('x')",
     "# ruff: noqa: TID251\ntorch.load('x')", "# flake8: noqa\ntorch.load('x')"],
)  # fmt: skip
def test_no_way_to_excuse_a_line_escapes_the_count(code: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"import torch\n{code}\n")
    assert justified(tmp_path)["TID251"] == {"x.py": 1}


def test_checkpoints_are_loaded_in_one_place_and_never_with_code() -> None:
    assert justified() == JUSTIFIED
    (load,) = re.findall(r"torch\.load\(.*?\n        \)", (ROOT / "trainer/checkpoint/state.py").read_text(), re.DOTALL)
    assert "weights_only=True" in load


def test_each_exception_says_why() -> None:
    search = ["git", "grep", "-n", "-E", "noqa: .*S[0-9]{3}", "--", "*.py", ":!tests"]
    for row in subprocess.check_output(search, cwd=ROOT, text=True).splitlines():
        if re.search(r"noqa: (S\d{3}|.*, ?S\d{3})", row):
            assert re.search(r"noqa: [A-Z0-9, ]+?\s+(- )?[a-z]", row), row
