"""What the user sees: banner, labelled lines, a live line on a terminal, the failure's box, the closing table."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from launcher.base.terminal import mute
from launcher.follow.failure import Failure
from launcher.follow.progress import Progress
from launcher.job.plan import Plan

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error: Rich itself would end the program."""
        raise BrokenPipeError


class Screen:
    """Prints everything about a followed job to standard output; plain lines where that is no terminal."""

    def __init__(self, plan: Plan) -> None:
        self._console = _Console(highlight=False, markup=False, soft_wrap=True)
        self._live: Bar | None = None
        self._plan = plan
        self._order = {node.name: node.node_rank for node in plan.nodes}
        self._label_width = max(len(f"{node.name}:{node.first_rank + node.ranks - 1}") for node in plan.nodes)
        self._unread = False

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._live = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
                transient=True,
            )
            self._live.add_task("starting", total=None, figures="")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def banner(self, versions: str) -> None:
        """Print versions, backend, and each node's address, ranks and devices."""
        plan = self._plan
        self._print(Text(f"ringmaster: job {plan.name}", style="bold"))
        self._print(Text(f"  {versions}"))
        ranks = "rank" if plan.world_size == 1 else "ranks"
        self._print(Text(f"  {len(plan.nodes)} node(s), {plan.world_size} {ranks}, backend {plan.backend}"))
        for node in plan.nodes:
            devices = f"GPU {', '.join(node.devices)}" if node.devices else "CPU"
            last = node.first_rank + node.ranks - 1
            span = f"rank {last}" if node.ranks == 1 else f"ranks {node.first_rank}-{last}"
            threads = node.environment["OMP_NUM_THREADS"]
            self._print(
                Text(f"  {node.name}: {node.address} ({node.interface}), {span}, {devices}, {threads} thread(s) a rank")
            )
        for note in plan.notes:
            self.note(note)

    def note(self, text: str) -> None:
        """Print a line of the launcher's own."""
        self._print(Text.assemble(("ringmaster: ", "bold"), text))

    def line(self, node: str, rank: int, text: bytes) -> None:
        """Print a line that a rank printed, behind the rank's label."""
        label = f"{node}:{rank}".ljust(self._label_width)
        if not self._console.is_terminal:
            self._write(label.encode() + b" | " + text + b"\n")
            return
        colour = _COLOURS[self._order[node] % len(_COLOURS)]
        # from_ansi keeps the program's colours and drops what would move the cursor
        self._print(Text.assemble((f"{label} | ", colour), Text.from_ansi(text.decode(errors="replace"))))

    def progress(self, progress: Progress) -> None:
        """Redraw the live line."""
        if self._live is None or progress.step is None:
            return
        task = self._live.task_ids[0]
        epochs = f"/{progress.epochs}" if progress.epochs else ""
        epoch = f"epoch {progress.epoch}{epochs} · " if progress.epoch is not None else ""
        self._live.update(
            task,
            description=f"{epoch}step {progress.step}",
            completed=progress.step,
            total=progress.total_steps,
            figures=_figures(progress),
        )

    def failure(self, failure: Failure, logs: str) -> None:
        """Print the failure's box: who failed, why, the last lines, what to do."""
        title = "FAILED: " + (failure.node if failure.rank is None else f"{failure.node} rank {failure.rank}")
        body = Text.assemble((failure.reason, "bold"))
        if failure.exit_code is not None:
            body.append(f"\nexit code {failure.exit_code}" + (f" ({failure.signal})" if failure.signal else ""))
        if failure.log_tail:
            body.append("\n\n" + "\n".join(failure.log_tail) + "\n", "dim")
        if failure.hint:
            body.append(f"\nhint: {failure.hint}", "yellow")
        if failure.log_tail:
            body.append(f"\nall of its output: {logs}")
        if self._console.is_terminal:
            self._print(Panel(body, title=Text(title, style="bold red"), box=ROUNDED, border_style="red"))
        else:  # no frame: lines stay whole, for grep and for copying
            self._print(Text(f"{title}: ") + body)

    def result(self, summary: Mapping[str, Any], report: str) -> None:
        """Print the closing table, and where the report is."""
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, text in _rows(summary):
            table.add_row(name, text)
        table.add_row("report", report)
        self._print(table)

    def _print(self, content: Any) -> None:
        self._attempt(lambda: self._console.print(content))

    def _write(self, data: bytes) -> None:
        def write() -> None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

        self._attempt(write)

    def _attempt(self, show: Callable[[], object]) -> None:
        """Print; that nobody listens (`| head`, a full disk, a closed terminal) is no reason to stop training."""
        if self._unread:
            return
        try:
            show()
        except (OSError, ValueError, AttributeError):  # broken, closed, or none at all
            self._unread = True
            mute()


def _figures(progress: Progress) -> str:
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.images_per_s is not None:
        parts.append(f"{progress.images_per_s:,.0f} images/s")
    if progress.eta_s is not None:
        parts.append(f"{duration(progress.eta_s)} left")
    return " · ".join(parts)


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("state", str(summary["state"]))]
    if summary["test_accuracy"] is not None:
        rows.append(("test accuracy", f"{summary['test_accuracy']:.4f}"))
    if summary["epochs"] is not None:
        rows.append(("epochs", str(summary["epochs"])))
    if summary["images_per_s"] is not None:
        rows.append(("images/s", f"{summary['images_per_s']:,.0f} (all ranks, median)"))
    if summary["first_step_s"] is not None:
        rows.append(("first step", f"after {summary['first_step_s']:.1f} s"))
    rows.append(("wall time", duration(summary["wall_s"])))
    if summary["checkpoint"] is not None:
        rows.append(("checkpoint", str(summary["checkpoint"])))
    return rows


def duration(seconds: float) -> str:
    """Return a duration for people: `42.3 s`, `3 min 07 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return time.strftime(f"{minutes // 60} h %M min", time.gmtime(round(seconds)))


def shown(path: Path) -> str:
    """Return a path, as short as it can be from the folder where the user is."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
