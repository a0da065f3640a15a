"""Proves, while the image is built, that what training needs is there; prints what is, or pip's constraints for it."""

import json
import platform
import sys
from importlib import metadata

import torch
import torchvision
from torch import distributed

if not (distributed.is_nccl_available() and distributed.is_gloo_available()):
    sys.exit("this torch lacks NCCL or Gloo")
packages = {one.name: one.version for one in metadata.distributions()}
if "--constraints" in sys.argv:
    print("\n".join(f"{name}=={version}" for name, version in packages.items()))
else:
    found = {
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "cuda": torch.version.cuda or "",
        "packages": {"python": platform.python_version(), **dict(sorted(packages.items()))},
    }
    print(json.dumps(found))
