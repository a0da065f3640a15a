"""RUN_DIR of a script on this machine: a folder of its own while it runs, so that no name in it is the launcher's.

What is in it shows in the job's folder at once, as links. At the end it is moved there, by the rule that counts on a
cluster too: what has a name of ours goes to nodes/<first node>/. If the launcher is killed, it stays where it is.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from launcher.job.folder import OURS, JobFolder

_EVERY_S = 0.5


def make(folder: JobFolder) -> None:
    """Make the folder, for a job that is about to start.

    Raises:
        OSError: the disk refuses it.
    """
    folder.own.mkdir(mode=0o700)
    (folder.own / folder.checkpoints.name).symlink_to(f"../{folder.checkpoints.name}")
    _show(folder, folder.metrics.name)  # which is followed before it is there


class RunFolder:
    """The folder while its job runs."""

    def __init__(self, folder: JobFolder, head: str) -> None:
        """Args:
        head: the job's first node.
        """
        self._folder, self._aside = folder, folder.of_node(head)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_on, daemon=True)
        if folder.own.is_dir():
            self._thread.start()

    def bring_home(self) -> list[str]:
        """Move what the script has written to the job's folder; return what could not be moved, and why."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        own, left = self._folder.own, []
        links, places = list(_links(own)), dict[str, Path]()
        for path in sorted(own.iterdir()) if own.is_dir() else []:
            try:
                places[path.name] = self._move(path)
            except OSError as error:
                places[path.name] = path
                left.append(f"{path.name} ({error.strerror})")
        self._lead_again(links, places)
        with suppress(OSError):  # not empty, or not there
            own.rmdir()
        for path in self._folder.path.iterdir():  # of what was never there, or was removed
            if _is_ours(path, own) and not path.exists():
                path.unlink()
        return left

    def _move(self, path: Path) -> Path:
        """Move a file or a folder; return where it is now."""
        if (
            path.is_symlink()
            and path.name == self._folder.checkpoints.name
            and path.readlink() == Path("..", path.name)
        ):
            path.unlink()
            return self._folder.checkpoints
        here = self._folder.path / path.name
        if _is_ours(here, path.parent):
            here.unlink()
        if path.name in OURS or here.exists() or here.is_symlink():
            self._aside.mkdir(parents=True, exist_ok=True)
            here = self._aside / path.name
        path.rename(here)
        return here

    def _lead_again(self, links: Sequence[tuple[Path, Path]], places: Mapping[str, Path]) -> None:
        """Let links lead to what they led to: by whole paths, which have changed, or past what was put aside."""

        def moved(path: Path) -> Path:
            first, *rest = path.parts or (".",)
            return places.get(first, self._folder.path / first).joinpath(*rest)

        for link, end in links:
            here, words = moved(link), os.path.relpath(moved(end), moved(link).parent)
            with suppress(OSError):
                if here.readlink().is_absolute() or words != os.path.relpath(end, link.parent):
                    here.unlink()
                    here.symlink_to(words)

    def _show_on(self) -> None:
        while not self._ended.wait(_EVERY_S):
            with suppress(OSError):
                for path in self._folder.own.iterdir():
                    if path.name not in OURS:
                        _show(self._folder, path.name)


def _links(own: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the links that lead to something in the folder, and where to, both as paths below it."""
    for folder, folders, files in os.walk(own):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink():
                end = Path(os.path.normpath(path.parent / path.readlink()))
                for top in (own, own.resolve()):
                    if end.is_relative_to(top):
                        yield path.relative_to(own), end.relative_to(top)
                        break


def _is_ours(path: Path, own: Path) -> bool:
    """Whether it is a link that `_show` has made."""
    return path.is_symlink() and path.readlink() == Path(own.name, path.name)


def _show(folder: JobFolder, name: str) -> None:
    with suppress(FileExistsError):
        (folder.path / name).symlink_to(Path(folder.own.name, name))
