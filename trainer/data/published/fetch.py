"""Makes a data set's files present and verified in the data folder, from the first source that has them.

A user's own copy is read once for each state of that copy, and kept in a folder `own-<key>` below the data folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.data.published.catalog import CATALOG
from trainer.data.published.download import Say, UnavailableError, download, unpack_package
from trainer.data.published.formats import DamagedError, Raw
from trainer.data.published.local_files import SourceFiles, find
from trainer.data.published.store import Stored, read, store, work_folder
from trainer.errors import UserError

SYSTEM_ROOT = Path("/")
"""Where an installed package's files lie below."""


class NoSourceError(UserError):
    """This node can't get the data set; another one may be able to."""


def ensure(name: str, *, data_dir: Path, own_copy: Path | None, say: Say, other_data: bool = False) -> None:
    """Make the data set ready in `data_dir`. One process per node calls this, before the others `load` the data set.

    `other_data`: the user's own copy is meant to be another data set of the same format and size.

    Processes and nodes that share the folder wait for each other.

    Raises:
        UserError: exit code 2, if no source has the data, the user's copy is missing or damaged, or the folder
            can't be written.
    """
    if name == "synthetic":
        if own_copy:
            say(f"WARNING: the synthetic data set is made up, {own_copy} is not used")
        return
    if not obtain(name, data_dir=data_dir, own_copy=own_copy, say=say, other_data=other_data).published:
        say(f"WARNING: {own_copy} is not the published {name} (other checksums); used as it is")


def obtain(name: str, *, data_dir: Path, own_copy: Path | None, say: Say, other_data: bool = False) -> Stored:
    """Return the verified data set, fetched or copied first if necessary.

    Raises:
        UserError: as `ensure`.
    """
    with _explained(name, data_dir, own_copy):
        own = None if own_copy is None else _find_own(name, own_copy)
        root = data_dir.absolute() if own is None else data_dir.absolute() / f"own-{own.key()}"

        def bring(work: Path) -> tuple[Raw, bool]:
            if own is None:
                return _fetch(name, root, work, say), True
            contents = own.read()
            published = is_published(name, contents)
            if not (published or other_data):
                _refuse_lookalike(name, contents)
            return contents, published

        return read(root, name) or _keep(name, root, bring, say)


def accept(name: str, contents: Raw, *, data_dir: Path, published: bool, say: Say) -> None:
    """Store in `data_dir` what another node has sent, unless another process has done so by now.

    Raises:
        UserError: as `ensure`.
    """
    with _explained(name, data_dir):
        _keep(name, data_dir.absolute(), lambda _work: (contents, published), say)


def _keep(name: str, root: Path, bring: Callable[[Path], tuple[Raw, bool]], say: Say) -> Stored:
    """Store below `root`, if necessary, what `bring` returns: the contents, and whether they are the published ones."""
    root.mkdir(parents=True, exist_ok=True)
    with work_folder(root, say=say) as work:
        if stored := read(root, name):  # another process was faster
            return stored
        contents, published = bring(work)
        store(root, name, contents, work=work, published=published)
        stored = read(root, name)
    if stored is None:
        raise UserError(f"{root}: the files just written there read back differently; check that disk", exit_code=2)
    return stored


@contextmanager
def _explained(name: str, data_dir: Path, own_copy: Path | None = None) -> Iterator[None]:
    """Turn what went wrong with a file into a UserError that says how to fix it."""
    try:
        yield
    except DamagedError as error:
        raise UserError(
            f"DATA={own_copy}: {error}; three ways out: {_ways_out(name, data_dir)}", exit_code=2
        ) from error
    except OSError as error:
        where = error.filename or data_dir
        raise UserError(
            f"the data set {name}: {where}: {error.strerror or error}; fix that or choose another --data-dir",
            exit_code=2,
        ) from error


def is_published(name: str, contents: Raw) -> bool:
    """Return whether every file is byte for byte the one that the data set's authors published."""
    expected = CATALOG[name].sha256
    return all(hashlib.sha256(content).hexdigest() == expected[file] for file, content in contents.items())


def _refuse_lookalike(name: str, contents: Raw) -> None:
    arrays = CATALOG[name].parse(contents)
    if (len(arrays.train_labels), len(arrays.test_labels)) == CATALOG[name].images:
        raise DamagedError(
            f"as many images as the published {name}, but other checksums: it is damaged (or, if it is meant to be "
            "another data set, add --other-data)"
        )


def _ways_out(name: str, root: Path) -> str:
    first, second = (way.format(root=root) for way in CATALOG[name].ways_out)
    return f"(1) {first}, (2) {second}, (3) fix the network or proxy and run again, or train with --dataset synthetic"


def _find_own(name: str, own_copy: Path) -> SourceFiles:
    if not own_copy.exists():
        raise DamagedError("no such file or folder")
    source_files = find(name, own_copy)
    if not source_files:
        raise DamagedError(f"contains none of {name}'s files, which are {', '.join(CATALOG[name].files)}")
    return source_files


def _fetch(name: str, root: Path, work: Path, say: Say) -> Raw:
    """Return the contents from the first source that has them whole; report each failure in a line."""
    sources: dict[str, Callable[[], Raw | None]] = {f"files in {root}": lambda: _published_files(name, root)}
    described = CATALOG[name]
    package = described.package
    if package:
        sources["the installed package"] = lambda: _published_files(name, SYSTEM_ROOT / package.folder)
    sources["the authors' site"] = lambda: _from_mirrors(name, work, say)
    if package:
        sources[f"the package {package.name}"] = lambda: _published_files(name, unpack_package(package, work, say=say))
    failures = []
    for label, source in sources.items():
        try:
            if contents := source():
                CATALOG[name].parse(contents)
                return contents
        except (DamagedError, UnavailableError) as error:
            say(f"{name}: {label}: {error}")
            failures.append(f"{label}: {error}")
    raise NoSourceError(
        f"could not get the data set {name} ({'; '.join(failures)}); three ways to get it: {_ways_out(name, root)}",
        exit_code=2,
    )


def _published_files(name: str, place: Path) -> Raw | None:
    """Return the files at `place` if they are the published ones; None if there are none."""
    source_files = find(name, place)
    if not source_files:
        return None
    contents = source_files.read()
    if not is_published(name, contents):
        raise DamagedError("not the published files (other checksums)")
    return contents


def _from_mirrors(name: str, work: Path, say: Say) -> Raw:
    """Return the contents from the first of the set's mirrors that has all its files."""
    reasons = []
    for number, mirror in enumerate(CATALOG[name].mirrors):
        folder = work / f"mirror{number}"
        folder.mkdir()
        try:
            for file in mirror.files:
                download(file.url, folder / file.name, sha256=file.sha256, say=say)
        except UnavailableError as error:
            reasons.append(f"{mirror.address}: {error}")
            continue
        if source_files := find(name, folder):
            return source_files.read()
        reasons.append(f"{mirror.address}: none of the files that were downloaded is one of the set's")
    raise UnavailableError(", ".join(reasons) or "none known")
