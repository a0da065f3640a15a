"""Say what the Python of an image has. It runs in a container of the image, as `python -c <this file>`.

It stands alone: only the standard library of Python 3.9, no sibling imports. It prints one JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import sysconfig
from importlib import metadata, util
from typing import Any


def contents() -> dict[str, Any]:
    """Return what a job needs to know: where Python is, what is installed, and whether torch can be used."""
    packages = {str(one.metadata["Name"]): one.version for one in metadata.distributions()}
    found: dict[str, Any] = {
        "python": sys.executable,
        "site": site_folder(sysconfig.get_path("purelib"), sys.path),
        "packages": {"python": platform.python_version(), **dict(sorted(packages.items()))},
        "torch": "",
        "torchrun": False,
        "cuda": "",
        "architectures": "",
        "problem": "",
        "capabilities": os.environ.get("NVIDIA_DRIVER_CAPABILITIES", ""),
    }
    try:
        torch = importlib.import_module("torch")  # the image's; nothing of ours imports it
        found["torch"], found["cuda"] = str(torch.__version__), str(torch.version.cuda or "")
        found["torchrun"] = util.find_spec("torch.distributed.run") is not None
        found["packages"].setdefault("torch", found["torch"])
        # torch.cuda.get_arch_list() says nothing where there is no GPU; a build without CUDA lacks the function.
        found["architectures"] = str(getattr(torch._C, "_cuda_getArchFlags", str)() or "")
    except Exception as error:  # also what a library of its own lacks
        found["problem"] = f"{type(error).__name__}: {error}"
    return found


def site_folder(usual: str, path: list[str]) -> str:
    """Return the folder whose .pth files Python reads when it starts; empty if there is none."""
    folders = [folder for folder in path if os.path.basename(folder) in ("site-packages", "dist-packages")]
    return usual if usual in folders else next(iter(folders), "")


if __name__ == "__main__":
    print(json.dumps(contents()))
