"""A user's package: src layout, relative imports, and a program in it that says how it was started."""

from pathlib import Path

_TRAIN = """
import json, os, sys
from .model import VALUE
from pkg import model
import torch, torch.distributed as dist

def main():
    dist.init_process_group()
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    rank = dist.get_rank()
    dist.destroy_process_group()
    with open(os.environ["CHECKPOINT_DIR"] + f"/{rank}.bin", "a") as file:
        file.write("x")
    print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "first": sys.path[0], "path": sys.path,
                      "value": VALUE, "total": total.item(), "settings": open("settings.txt").read(),
                      "pythonpath": os.environ["PYTHONPATH"]}), flush=True)

if __name__ == "__main__":
    main()
"""


def write_package(project: Path) -> Path:
    """Write it below `project`, which becomes a repository's top; return that."""
    package = project / "src" / "pkg"
    package.mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "settings.txt").write_text("mine")
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("VALUE = 42\n")
    (package / "train.py").write_text(_TRAIN)
    return project
