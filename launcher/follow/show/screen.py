"""What the user sees: banner, labelled lines, a live line on a terminal, the failure's box, the closing table.

Nothing here waits for whoever reads it, except at the very end.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.segment import Segments
from rich.table import Table
from rich.text import Text

from launcher.base import caller
from launcher.base.errors import StoppedError
from launcher.base.terminal import in_one_line, visible
from launcher.follow.cause.failure import Failure
from launcher.follow.incidents import TOLD_TO_GO
from launcher.follow.progress import Progress
from launcher.follow.show.backlog import SkippingBacklog, SpillingBacklog
from launcher.follow.show.printer import Printer
from launcher.follow.show.rank_lines import as_printed, for_a_terminal
from launcher.job.plan import Plan

_COLOURS = (36, 35, 32, 33, 34, 96, 95, 92)
"""Of the nodes, as terminals count them: cyan, magenta, green …"""
_PATIENCE_S, _IMPATIENCE_S = 10.0, 1.0
"""How long, at the end, a reader may read nothing: when the job ended by itself, when the user ended it."""


class Screen:
    """Prints everything about a followed job to standard output; plain lines where that is no terminal.

    Its end waits until all is printed. So it encloses everything that is shown.
    """

    def __init__(self, plan: Plan, logs: Path | None = None, *, quiet: bool = False) -> None:
        """Args:
        logs: the folder of the job's logs, for whoever wants to read what was skipped here.
        quiet: show neither what ranks print nor how far they are.
        """
        self.hurried = False
        """Whether the user has ended the job, and doesn't want to wait for a reader that has stopped reading."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._terminal = bool(sys.stdout) and sys.stdout.isatty()
        self._console = Console(
            # Only a form for Rich: what it makes is printed by the printer.
            file=io.TextIOWrapper(io.BytesIO(), encoding=encoding),
            force_terminal=True if self._terminal else None,
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        self._plan = plan
        self._logs = logs
        self._quiet = quiet
        self._order = {node.name: node.node_rank for node in plan.nodes}
        self._label_width = max(len(f"{node.name}:{node.first_rank + node.ranks - 1}") for node in plan.nodes)
        self._bar: Bar | None = None
        if self._terminal and not quiet and not self._console.is_dumb_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
            )
            self._bar.add_task("starting", total=None, figures="")
        draw, skipped = self._drawn, self._skipped
        self._printer = Printer(
            SkippingBacklog(draw, skipped) if self._terminal else SpillingBacklog(draw, skipped, logs)
        )

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _where: TracebackType | None) -> None:
        stopped = kind is not None and issubclass(kind, (KeyboardInterrupt, StoppedError))
        self._printer.live(b"")
        with _Interrupt() as interrupt:
            self._printer.wait(self._patience_s(hurried=self.hurried or stopped), lambda: interrupt.came)
        self._printer.close()

    def catch_up(self) -> None:
        """Wait until all is printed, however long that takes: for what no job waits for."""
        self._printer.wait(None)

    def banner(self, versions: str) -> None:
        """Print versions, backend, and each node's address, ranks and devices."""
        plan = self._plan
        self._print(Text(visible(f"ringmaster: job {plan.name}"), style="bold"))
        self._print(Text(visible(f"  {versions}")))
        ranks = "rank" if plan.world_size == 1 else "ranks"
        self._print(Text(visible(f"  {len(plan.nodes)} node(s), {plan.world_size} {ranks}, backend {plan.backend}")))
        for node in plan.nodes:
            devices = f"GPU {', '.join(node.devices)}" if node.devices else "CPU"
            last = node.first_rank + node.ranks - 1
            span = f"rank {last}" if node.ranks == 1 else f"ranks {node.first_rank}-{last}"
            threads = node.environment["OMP_NUM_THREADS"]
            where = f"{node.name}: {node.address} ({node.interface})"
            self._print(Text(visible(f"  {where}, {span}, {devices}, {threads} thread(s) a rank")))
        for note in plan.notes:
            self.note(note)
        self._draw_bar()

    def note(self, text: str) -> None:
        """Print a line of the launcher's own; on a terminal, rank's lines that keep it waiting are skipped."""
        self._print(Text.assemble(("ringmaster: ", "bold"), visible(text)), urgent=True)

    def output(self, node: str, rank: int, lines: Sequence[bytes]) -> None:
        """Print lines that a rank printed, behind the rank's label."""
        if not self._quiet:
            self._printer.lines(node, rank, lines)

    def progress(self, progress: Progress) -> None:
        """Redraw the live line."""
        if self._bar is None:
            return
        if progress.step is not None:
            epochs = f"/{progress.epochs}" if progress.epochs else ""
            epoch = f"epoch {progress.epoch}{epochs} · " if progress.epoch is not None else ""
            self._bar.update(
                self._bar.task_ids[0],
                description=f"{epoch}step {progress.step}",
                completed=progress.step,
                total=progress.total_steps,
                figures=_figures(progress),
            )
        self._draw_bar()

    def failure(self, failure: Failure, logs: str) -> None:
        """Print the failure's box: who failed, why, the last lines, what to do."""
        self._end_bar()
        title = f"FAILED: {visible(_culprit(failure))}"
        body = Text.assemble((visible(failure.reason), "bold"))
        if failure.exit_code is not None:
            body.append(f"\nexit code {failure.exit_code}" + (f" ({failure.signal})" if failure.signal else ""))
        if failure.log_tail:
            body.append("\n\n" + "\n".join(map(visible, failure.log_tail)) + "\n", "dim")
        if failure.hint:
            body.append(f"\nhint: {visible(failure.hint)}", "yellow")
        if failure.log_tail:
            body.append(f"\nall of {'the' if _unproven(failure) else 'its'} output: {logs}")
        if self._terminal:
            panel = Panel(body, title=Text(title, style="bold red"), box=ROUNDED, border_style="red")
            self._printer.text(self._rendered(panel, soft_wrap=False))  # else what is longer than the box is cut off
        else:  # no frame: lines stay whole, for grep and for copying
            self._print(Text(f"{title}: ") + body)

    def result(self, summary: Mapping[str, Any], report: str) -> None:
        """Print the closing table, and where the report is."""
        self._end_bar()
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, text in _rows(summary):
            table.add_row(name, in_one_line(text))
        table.add_row("report", report)
        self._print(table)

    def _print(self, content: Any, *, urgent: bool = False) -> None:
        self._printer.text(self._rendered(content), urgent=urgent)

    def _rendered(self, content: Any, *, soft_wrap: bool = True) -> bytes:
        with self._console.capture() as capture:
            self._console.print(content, soft_wrap=soft_wrap)
        text = capture.get()
        try:
            return text.encode(self._console.encoding, "surrogateescape")  # names may be bytes that are no text
        except UnicodeEncodeError:
            return text.encode(self._console.encoding, "replace")

    def _draw_bar(self) -> None:
        if self._bar is not None:
            # One column less than there are: in the last one, terminals differ.
            options = self._console.options.update(width=max(1, self._console.width - 1), height=1, no_wrap=True)
            line = self._console.render_lines(self._bar.get_renderable(), options, pad=False)[0]
            self._printer.live(self._rendered(Segments(line)).rstrip(b"\n"))

    def _end_bar(self) -> None:
        self._bar = None
        self._printer.live(b"")

    def _drawn(self, node: str, rank: int, lines: Sequence[bytes]) -> bytes:
        label = f"{node}:{rank}".ljust(self._label_width)
        if not self._console.is_terminal:
            return as_printed(label, lines)
        colours = self._console.color_system is not None and not self._console.no_color
        return for_a_terminal(label, lines, _COLOURS[self._order[node] % len(_COLOURS)] if colours else None)

    def _skipped(self, lines: Mapping[str, int]) -> bytes:
        count = f"{sum(lines.values()):,} lines" if sum(lines.values()) > 1 else "1 line"
        where = ""
        if self._logs:
            logs = self._logs / f"{next(iter(lines))}.log" if len(lines) == 1 else self._logs
            where = f": see {caller.shown(logs)}"
        return self._rendered(Text(f"… {count} of {', '.join(sorted(lines))} skipped here{where}", style="dim"))

    def _patience_s(self, *, hurried: bool) -> float | None:
        """Return for how long at the end a reader may read nothing; None: for as long as it likes."""
        if hurried:
            return _IMPATIENCE_S
        # A pager reads when its user turns the page. It needs a terminal, and so there is somebody to press Ctrl-C.
        return None if not self._terminal and _has_terminal() else _PATIENCE_S


class _Interrupt:
    """While it is entered, notes SIGINT and SIGTERM instead of obeying or ignoring them."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> "_Interrupt":
        self._before = {}
        with suppress(ValueError):  # not the main thread
            for each in (signal.SIGINT, signal.SIGTERM):
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _note(self, _signum: int, _frame: object) -> None:
        self.came = True


def _has_terminal() -> bool:
    """Return whether we belong to a terminal, wherever our output goes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _figures(progress: Progress) -> str:
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.images_per_s is not None:
        parts.append(f"{progress.images_per_s:,.0f} images/s")
    if progress.eta_s is not None:
        parts.append(f"{duration(progress.eta_s)} left")
    return " · ".join(parts)


def _unproven(failure: Failure) -> bool:
    return failure.suspect or failure.node is None


def logs_for(failure: Failure, folder: Path) -> str:
    """Return where to read on: the log of the node that failed, or all logs if it isn't certain which one did."""
    return caller.shown(folder if _unproven(failure) else folder / f"{failure.node}.log")


def _culprit(failure: Failure) -> str:
    if failure.node is None:
        return "where is not known"
    who = failure.node if failure.rank is None else f"{failure.node} rank {failure.rank}"
    return f"maybe {who}" if failure.suspect else who


def _state(summary: Mapping[str, Any]) -> str:
    told = [each["node"] for each in summary.get("incidents", ()) if each["kind"] == TOLD_TO_GO]
    state = str(summary["state"])
    return f"{state}: {', '.join(told)} {'was' if len(told) == 1 else 'were'} told to go" if told else state


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("state", _state(summary))]
    if summary["test_accuracy"] is not None:
        rows.append(("test accuracy", f"{summary['test_accuracy']:.4f}"))
    if summary["epochs"] is not None:
        rows.append(("epochs", str(summary["epochs"])))
    if summary["images_per_s"] is not None:
        rows.append(("images/s", f"{summary['images_per_s']:,.0f} (all ranks, median)"))
    if summary["first_step_s"] is not None:
        rows.append(("first step", f"after {summary['first_step_s']:.1f} s"))
    if summary["wall_s"] is not None:
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
