"""Writes measurements down: JSON, charts, and their blocks in pages whose other words are hand-written."""

import json
from pathlib import Path

from benchmarks import sources
from benchmarks.machine import Machine
from benchmarks.publish import drawing, readme, tables
from benchmarks.result import Result
from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

PAGE = "performance.md"
FOLDER = "performance"
"""Beside the page: <name>.json for each measurement, <chart>.svg for each chart."""


def publish(result: Result, machine: Machine, docs: Path) -> bool:
    """Store a result under `docs` and rewrite its block in `docs`/performance.md; the same twice changes nothing.

    Returns:
        False, and nothing is written, where nothing was measured but an earlier result with values is there: a machine
        without GPU leaves a GPU's figures alone.

    Raises:
        RingmasterError: the page's marks are damaged, or something can't be written.
    """
    page = docs / PAGE
    if not result.measured and _has_values(docs / FOLDER / f"{result.name}.json"):
        return False
    try:
        (docs / FOLDER).mkdir(parents=True, exist_ok=True)
        before = page.read_bytes().decode() if page.exists() else "# Performance\n"
        after = with_block(before, result, machine, where=str(page))
        stored = {"machine": machine.to_json(), "result": result.to_json()}
        _write(docs / FOLDER / f"{result.name}.json", json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
        for chart in result.charts:
            _write(docs / FOLDER / f"{chart.name}.svg", drawing.draw(chart))
        _write(page, after)
    except OSError as error:
        raise RingmasterError(
            f"{error.filename or docs} can't be written: {error.strerror}; fix that, then measure again",
            exit_code=ExitCode.FAILED,
        ) from error
    return True


def redraw(docs: Path) -> list[str]:
    """Rewrite the blocks and charts of all results stored under `docs`, as they are drawn now; return their names.

    Raises:
        RingmasterError: a stored result can't be read, or as in `publish`.
    """
    names = []
    for path in sorted((docs / FOLDER).glob("*.json"), key=lambda path: path.stem):
        result, machine = _read(path)
        publish(result, machine, docs)
        names.append(result.name)
    return names


def redraw_readme(docs: Path, page: Path) -> None:
    """Rewrite the results in the README at `page` from what is stored under `docs`; where there is no page, do nothing.

    Raises:
        RingmasterError: the page's marks are damaged, a stored result can't be read or lacks a figure, or the page
            can't be written.
    """
    if not page.exists():
        return
    results = {path.stem: _read(path) for path in sorted((docs / FOLDER).glob("*.json"))}
    try:
        _write(page, readme.with_results(page.read_bytes().decode(), results, where=str(page)))
    except OSError as error:
        raise RingmasterError(f"{page} can't be written: {error.strerror}", exit_code=ExitCode.FAILED) from error


def _read(path: Path) -> tuple[Result, Machine]:
    try:
        return stored(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RingmasterError(
            f"{path} can't be read: {error}; measure again: make bench ONLY={path.stem}", exit_code=ExitCode.FAILED
        ) from error


def _has_values(path: Path) -> bool:
    try:
        return stored(path)[0].measured
    except (OSError, ValueError, KeyError, TypeError):
        return False


def stored(path: Path) -> tuple[Result, Machine]:
    """Return what `publish` wrote into a JSON file.

    Raises:
        OSError, ValueError, KeyError, TypeError: it can't be read, or is another kind of file.
    """
    value = json.loads(path.read_text(encoding="utf-8"))
    return Result.from_json(value["result"]), Machine.from_json(value["machine"])


def with_block(page: str, result: Result, machine: Machine, *, where: str) -> str:
    """Return the page with the result between its marks, or appended with heading and marks; else byte for byte.

    Raises:
        RingmasterError: a mark is missing, appears twice, or they are in the wrong order; `where` is the page's name
            in that message.
    """
    begin, end = f"<!-- bench:{result.name} -->", f"<!-- /bench:{result.name} -->"
    content = f"{begin}\n{block(result, machine)}\n{end}"
    counts = page.count(begin), page.count(end)
    if counts == (0, 0):
        return f"{page.rstrip()}\n\n## {result.title}\n\n{content}\n"
    if counts != (1, 1) or page.index(begin) > page.index(end):
        raise RingmasterError(f"{where}: needs {begin} once, and {end} once after it; put them right or remove both")
    return page[: page.index(begin)] + content + page[page.index(end) + len(end) :]


def block(result: Result, machine: Machine) -> str:
    """Return the text between the marks: table, charts, command, machine, and whether the code has changed since."""
    parts = [tables.markdown(result)]
    parts += [f"![{chart.title}]({FOLDER}/{chart.name}.svg)" for chart in result.charts]
    origin = machine.line + sources.note(result.name, machine.code)
    parts.append(f"`{result.command}`: {origin}. [All values]({FOLDER}/{result.name}.json).")
    return "\n\n".join(parts)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_bytes() != text.encode():
        atomic_file.write(path, text)
