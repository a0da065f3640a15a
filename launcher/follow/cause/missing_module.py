"""What to do where a script lacks a module: install its package, or let Python find the user's own code.

A module's name is not always its package's, and an index holds packages of anybody: a name that is a guess, or that of
the user's own code, is never one to install (dependency confusion).
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

from launcher.base import caller
from launcher.base.paths import ROOT
from launcher.follow.cause.failure import Failure
from launcher.job.code_root import code_root, git_top, importable
from launcher.job.module import find, module_name
from launcher.job.named_image import add_packages
from launcher.job.plan import Plan

_MISSING = re.compile(r"No module named '?([A-Za-z_][\w.]*)'?(?:; '([\w.]+)' is not a package)?")
_RAISED = re.compile(f"ModuleNotFoundError: {_MISSING.pattern}")
_OTHER_NAMES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "Crypto": "pycryptodome",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "hydra": "hydra-core",
    "imblearn": "imbalanced-learn",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "open_clip": "open_clip_torch",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Well-known modules whose packages have other names."""
_SAME_NAMES = frozenset({
    "accelerate", "albumentations", "bitsandbytes", "boto3", "datasets", "deepspeed", "diffusers", "einops", "fire",
    "h5py", "huggingface_hub", "joblib", "kornia", "librosa", "lightning", "lmdb", "loguru", "matplotlib", "mlflow",
    "monai", "nltk", "numba", "numpy", "omegaconf", "onnx", "optuna", "orjson", "pandas", "peft", "polars", "psutil",
    "pyarrow", "pycocotools", "pydantic", "regex", "requests", "rich", "safetensors", "scipy", "seaborn",
    "sentencepiece", "soundfile", "spacy", "tensorboard", "tensorboardX", "tiktoken", "timm", "tokenizers",
    "torchaudio", "torchmetrics", "tqdm", "transformers", "tyro", "ultralytics", "wandb", "webdataset", "xarray",
    "zarr",
})  # fmt: skip
"""Well-known packages that are called as their module."""
_PASSED_OVER = frozenset({"node_modules", "site-packages", "__pycache__"})
_OURS = ROOT / ".venv" / "bin" / "python"
_DEPTH, _MOST_ENTRIES = 4, 20_000
"""How far a module is looked for in the user's code, below its root."""


def explained(failure: Failure, plan: Plan) -> Failure:
    """Return the failure with a hint for the module that it lacks, if that is its cause."""
    match = _MISSING.search(failure.reason)
    if match is None and failure.hint is None:
        match = next((found for line in reversed(failure.log_tail) if (found := _RAISED.search(line))), None)
    if match is None:
        return failure
    script, root, head = plan.script and Path(plan.script), plan.code_root and Path(plan.code_root), plan.nodes[0]
    foreign = head.image or "" if head.container and head.container.foreign else ""
    advice = hint(
        match[1],
        script or None,
        root=root or None,
        on_cluster=head.container is not None,
        foreign=foreign,
        hidden=match[2] or "",
        python=plan.rank_python or "",
    )
    return replace(failure, hint=advice)


def hint(
    module: str,
    script: Path | None,
    *,
    root: Path | None = None,
    on_cluster: bool,
    foreign: str = "",
    hidden: str = "",
    python: str = "",
) -> str | None:
    """Return what to do about a module that could not be imported; None where no advice is safe.

    Args:
        module: its full name, such as `yaml` or `mine.models`.
        script: the user's script on this machine; None: the program is a module.
        root: the code root that the user named, or a module's: Python looks there too.
        foreign: the image, if `make image` did not build it.
        hidden: the module that was found in its place, and is no package.
        python: the user's own, where the ranks run with it.
    """
    top = module.partition(".")[0]
    program = _Program(script if script and script.is_file() else None, root)
    if program.script or program.given:
        try:
            own = _find(top, program.root) or (None if hidden else _above(top, program))
        except OSError:  # a folder that can't be read may hold it
            return None
        if own is not None:
            return _own(top, module, own, program, on_cluster=on_cluster, hidden=bool(hidden))
    if top.startswith("_") or top in sys.stdlib_module_names:
        return None  # a part of Python or of a package, which no package of that name brings
    if hidden:
        return None
    return _install(module, on_cluster=on_cluster, foreign=foreign, python=shlex.quote(python or caller.shown(_OURS)))


@dataclass(frozen=True)
class _Program:
    """Where the program that lacks a module is, on this machine."""

    script: Path | None
    given: Path | None
    """The code root that the user named, or a module's."""

    @property
    def root(self) -> Path:
        """The code root."""
        return self.given or code_root(cast(Path, self.script))

    @property
    def looked_in(self) -> list[Path]:
        """The folders below the code root in which Python looks for modules."""
        named = [self.given / folder for folder in importable(self.given)] if self.given else []
        return [*([self.script.parent] if self.script else []), *named]


def _own(top: str, module: str, own: Path, program: _Program, *, on_cluster: bool, hidden: bool) -> str:
    folder = own.parent
    where = own.relative_to(program.root) if own.is_relative_to(program.root) else own
    if hidden:
        return f"your {where} hides a package of that name: call it something else"
    if folder in program.looked_in:
        if module != top:
            return f"'{top}' is your own code ({where}), which has no '{module.removeprefix(f'{top}.')}'"
        return f"'{top}' is your own code ({where}): " + (
            "was it there when the job started, and doesn't git ignore it? (docs/code.md)"
            if on_cluster
            else "was it there when the job started?"
        )
    return f"'{top}' is your own code ({where}), but Python looks for modules {_way(folder, program)}"


def _way(folder: Path, program: _Program) -> str:
    """Return where Python looks for modules, and how to have it look in a folder too."""
    root, script = program.root, program.script
    if script is None:
        return f"in {root} and its src only: move it there"
    where = f"beside {script.name}, in {root} and its src only" if program.given else f"beside {script.name} only"
    top = folder.parent if folder.name == "src" else folder
    if script.is_relative_to(top) and root.is_relative_to(top):  # not a part of the root: it would not travel whole
        code, name = shlex.quote(str(top)), module_name(script, top)
        as_module = f", or start it as MODULE={name} CODE={code}" if name else ""
        return f"{where}: add CODE={code}{as_module}"
    path = os.path.relpath(folder, script.parent)
    return (
        f"{where}: put sys.path.insert(0, os.path.join(os.path.dirname(__file__), '{path}')) before "
        f"its import, or the script into {folder.relative_to(root) if folder != root else 'the code root'}"
    )


def _install(module: str, *, on_cluster: bool, foreign: str, python: str) -> str:
    top, _, rest = module.partition(".")
    package = "" if rest else package_of(top)
    what = package or f"the package that has the module '{module}'"
    if rest:  # of a package that is missing altogether, Python names the first part only
        what = f"the package, or its version, that has '{module}' ('{top}' is there without it)"
    if foreign:
        return f"the image lacks it: {add_packages(what, foreign, '<a file with it>')}"
    if on_cluster:
        return f"the image lacks it: add {what} to a requirements.txt, then make image REQUIREMENTS=<that file>"
    return f"install {what} into this environment: {python} -m pip install {package or '<its name>'}"


def package_of(top: str) -> str:
    """Return the name of the package that has a module; empty if it isn't known for certain."""
    if top in _OTHER_NAMES:
        return _OTHER_NAMES[top]
    if top in _SAME_NAMES:
        return top
    from importlib import metadata  # only a failed job pays for it

    here = metadata.packages_distributions().get(top, [])  # nodes may lack what this machine has
    # One that came from a folder or an address, and not by its name, is nobody's but its owner's.
    named = [name for name in here if not metadata.distribution(name).read_text("direct_url.json")]
    return named[0] if len(set(here)) == 1 and named else ""


def _find(top: str, root: Path) -> Path | None:
    """Return the user's own module or package of that name, the one nearest to the code root."""
    for entry in _entries(root):
        if entry.name == f"{top}.py" and entry.is_file():
            return entry
        # Folders of data and logs have modules' names too (wandb/).
        if entry.name == top and entry.is_dir() and any(next(entry.glob(each), None) for each in ("*.py", "*/*.py")):
            return entry
    return None


def _above(top: str, program: _Program) -> Path | None:
    """Return the package or module that lies above a script whose project nothing marks, such as a git folder.

    That is the folder above the script's and its src, and above all packages that the script is a part of. Nobody's
    project is the home folder or the root of all.
    """
    if program.given or program.script is None or git_top(program.script.parent):
        return None
    folder = program.script.parent.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    if folder in {Path.home(), Path("/")}:
        return None
    found = find(top, [folder, folder / "src"])
    return next((path for path in found if path.is_file() or (path / "__init__.py").is_file()), None)


def _entries(root: Path) -> Iterator[Path]:
    """Yield what is below a folder, level by level, without environments and hidden folders."""
    level, count = [root], 0
    for _ in range(_DEPTH):
        below: list[Path] = []
        for folder in level:
            try:
                entries = sorted(islice(folder.iterdir(), _MOST_ENTRIES - count))
            except OSError:
                continue
            count += len(entries)
            yield from entries
            below += filter(_is_code, entries)
        level = below


def _is_code(entry: Path) -> bool:
    if entry.name.startswith(".") or entry.name in _PASSED_OVER or entry.is_symlink() or not entry.is_dir():
        return False
    return not any((entry / mark).exists() for mark in ("pyvenv.cfg", "conda-meta"))
