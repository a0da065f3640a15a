"""What the Python of an image says of itself: here it is this one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.on_node import image_contents

SOURCE = Path(image_contents.__file__).read_text()


def asked(tmp_path: Path, torch: str) -> dict[str, object]:
    """What a Python with such a torch says."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(torch)
    (tmp_path / "torch" / "distributed").mkdir()
    (tmp_path / "torch" / "distributed" / "__init__.py").touch()
    (tmp_path / "torch" / "distributed" / "run.py").touch()
    words = [sys.executable, "-c", SOURCE]
    environment = {"PYTHONPATH": str(tmp_path), "NVIDIA_DRIVER_CAPABILITIES": "all"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_torch_that_can_be_used(tmp_path: Path) -> None:
    torch = "__version__ = '2.9'\nclass version: cuda = '13.0'\nclass _C: _cuda_getArchFlags = lambda: 'sm_80 sm_90'\n"
    answer = asked(tmp_path, torch)
    assert answer["architectures"] == "sm_80 sm_90"
    assert (answer["torch"], answer["cuda"], answer["torchrun"], answer["problem"]) == ("2.9", "13.0", True, "")
    assert answer["python"] == sys.executable and answer["capabilities"] == "all"
    packages = answer["packages"]
    assert isinstance(packages, dict) and packages["python"].startswith("3.") and "pytest" in packages
    assert Path(str(answer["site"])).is_dir()


@pytest.mark.parametrize("inside", ["pass", "_cuda_getArchFlags = lambda: None"])
def test_a_torch_without_cuda(tmp_path: Path, inside: str) -> None:
    answer = asked(tmp_path, f"__version__ = '2.9'\nclass version: cuda = None\nclass _C: {inside}\n")
    assert (answer["cuda"], answer["architectures"], answer["problem"]) == ("", "", "")


def test_a_torch_that_can_not_be_imported(tmp_path: Path) -> None:
    answer = asked(tmp_path, "raise OSError('libcudart.so.13: cannot open shared object file')\n")
    assert answer["torch"] == "" and answer["torchrun"] is False
    assert answer["problem"] == "OSError: libcudart.so.13: cannot open shared object file"


def test_where_pth_files_are_read() -> None:
    debians = "/usr/lib/python3/dist-packages"
    assert image_contents.site_folder("/v/site-packages", ["", "/v", debians, "/v/site-packages"]) == "/v/site-packages"
    assert image_contents.site_folder("/elsewhere/site-packages", ["", debians]) == debians
    assert image_contents.site_folder("/elsewhere/site-packages", [""]) == ""
