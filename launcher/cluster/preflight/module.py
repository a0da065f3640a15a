"""A module that is not below the code root: does the image have it? Pure.

An image says which packages it has, and not which modules those bring. So a job is refused only where the package is
known for certain; otherwise the user is told what the job counts on.
"""

import re
import sys

from packaging.utils import canonicalize_name

from launcher.follow.cause.missing_module import package_of
from launcher.image.labels import ImageFacts
from launcher.job.named_image import add_packages
from launcher.job.program import Program


def wanted_of_image(program: Program) -> str:
    """Return the module, or `package:script`, that the image has to have; empty where the user's code has it."""
    if program.module_file or program.module.partition(".")[0] in sys.stdlib_module_names:
        return ""
    return program.module


def missing_module(module: str, image: ImageFacts, named: str = "") -> tuple[str, bool]:
    """Return what is wrong with a module that the image has to have, and whether that is certain; empty if nothing is.

    Args:
        named: the image, if it is the inventory that names it.
    """
    installed = {str(canonicalize_name(name)) for name in image.packages}
    if not installed:
        return "", False  # nobody can know yet
    package, colon, _ = module.partition(":")
    top = package.partition(".")[0]
    known = package if colon else package_of(top)
    if canonicalize_name(known or top) in installed or (not colon and _may_bring(top, installed)):
        return "", False
    what = known or f"the package that has {top}"
    remedy = (
        add_packages(what, named, "<a file with it>") if named else f"`make image REQUIREMENTS=<a file with {what}>`"
    )
    if colon:
        return f"MODULE={module}: the image has no package {package}: {remedy}", True
    where = "it is not in the code root, and the image has no package of that name"
    return f"MODULE={module}: {where}: name the folder that holds {top} with CODE=, or {remedy}", bool(known)


def _may_bring(top: str, installed: set[str]) -> bool:
    """Return whether a package's name has the module's in it, as lightning-fabric has lightning."""
    plain = re.sub(r"[-_]", "", top.lower())
    return any(plain in name.replace("-", "") for name in installed)
