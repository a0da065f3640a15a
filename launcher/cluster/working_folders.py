"""What a job's program writes into its working folders: all nodes' of one job, while it runs and at its end."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from launcher.base.atomic_file import write_json
from launcher.base.caller import shown
from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer.policy import Policy
from launcher.cluster.transfer.work import PROGRAM, PYTHON, WorkDownload, staying_words
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.refusals import one_line

_EVERY_S = 10.0
_LEAVE_S = 1.0
"""For a transfer that nobody wants any more to tidy up after itself."""
_SHARE = 50
"""A node that takes long to look at very many files is asked more rarely: it looks for a fiftieth of the time."""


class WorkingFolders:
    """Brings home what a program of the user's writes beside its code; the bundled trainer writes nothing there."""

    def __init__(
        self,
        plan: Plan,
        folder: JobFolder,
        policy: Policy,
        places: Mapping[str, PurePosixPath],
        remotes: Callable[[], Mapping[str, Remote]],
        say: Callable[[str], None],
    ) -> None:
        """Args:
        places: the job's folder on each node that is known.
        remotes: returns the connections as they are now.
        """
        self._folder, self._policy, self._places, self._remotes, self._say = folder, policy, places, remotes, say
        self._ended, self._given_up = threading.Event(), threading.Event()
        self._name = plan.name
        names = [node.name for node in plan.nodes if plan.code is not None and node.name in places]
        head = plan.nodes[0].name
        self._downloads = {name: self._download(name, folder.work_of(name, head=name == head)) for name in names}
        self._thread = threading.Thread(target=self._fetch_on, daemon=True)
        if self._downloads and policy.limits.job:
            self._thread.start()

    def _download(self, name: str, target: Path) -> WorkDownload:
        return WorkDownload(
            node=name,
            remote=lambda: self._remotes()[name],
            job=self._places[name],
            target=target,
            policy=self._policy,
            given_up=self._given_up,
            say=lambda text: self._say(f"{name}: {text}") if self._ended.is_set() else None,
        )

    def end(self, *, let_go: bool) -> None:
        """End the fetching while the job runs; what is on its way is waited for.

        Args:
            let_go: nobody wants it any more, so don't wait.
        """
        self._ended.set()
        if let_go:
            self._given_up.set()
        if self._thread.is_alive():
            try:
                self._thread.join(_LEAVE_S if let_go else None)
            except BaseException:  # Ctrl-C
                self._given_up.set()
                raise

    def fetch(self, name: str) -> None:
        """Fetch the rest of what a node has, once the job has ended there.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError, KeyError: it could not be fetched.
        """
        if name in self._downloads:
            self._downloads[name].fetch(finished=True)

    def tell(self) -> None:
        """Say how much is here, and where; and remember which of the code's own files it has replaced."""
        came = {name: download.came for name, download in self._downloads.items()}
        files, size = sum(files for files, _ in came.values()), sum(size for _, size in came.values())
        if not files:
            return
        places = [shown(self._downloads[name].target) for name, (count, _) in came.items() if count]
        where = " and ".join(places) if len(places) <= 2 else f"{places[0]} and {len(places) - 1} folders like it"
        what = f"{files:,} file{'s' if files > 1 else ''}, {amount(size)}"
        self._say(f"what the program wrote into its working folder is in {where}: {what}")
        replaced = {name: download.replaced for name, download in self._downloads.items() if download.replaced}
        if replaced:
            with suppress(OSError):  # without it the code's own files win, when a job continues from the copy here
                write_json(self._folder.replaced, replaced_here(self._folder) | replaced)

    def keep(self, name: str) -> None:
        """Have a node keep what was written, and nothing else of the working folder; name what is there alone.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError, KeyError: the node can't do that.
        """
        download = self._downloads.get(name)
        if download is None:
            return
        words = ("keep", str(download.job), "1" if download.staying else "")
        done = self._remotes()[name].run((*PYTHON, PROGRAM, *words), limit_s=600.0)
        if done.code:
            raise RingmasterError(f"{name}: {done.why}")
        if download.staying:
            self._say(
                f"{name}: stays there, in {download.job / 'work'}: {staying_words(download.staying.items())}; "
                f"make logs NAME={self._name} WORK_LIMIT=… fetches it"
            )

    def _fetch_on(self) -> None:
        """While the job runs: fetch what is new now and then."""
        told, pause_s = False, _EVERY_S
        while not self._ended.wait(pause_s):
            began = time.monotonic()
            for download in self._downloads.values():
                if self._ended.is_set():
                    return
                try:
                    download.fetch(finished=False)
                except (KeyError, *Trouble):
                    continue  # the runtime reports it; what was missed is fetched at the end
                except Exception as error:  # in this thread nobody else would hear of it
                    if not told:
                        told = True
                        self._say(f"working folders can't be fetched while the job runs ({one_line(error)})")
            looked_s = max(download.took_s for download in self._downloads.values())
            pause_s = max(_EVERY_S - (time.monotonic() - began), _SHARE * looked_s)


def replaced_here(folder: JobFolder) -> dict[str, dict[str, str]]:
    """Return by node which of the code's own files the program replaced in what is here, and what they were."""
    try:
        stored = json.loads(folder.replaced.read_text(encoding="utf-8"))
        return {str(node): {str(path): str(was) for path, was in each.items()} for node, each in stored.items()}
    except (OSError, ValueError, AttributeError):
        return {}
