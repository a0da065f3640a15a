"""Our blocks in files that belong to others. Pure: text in, text out."""

from __future__ import annotations

BEGIN = "# BEGIN ringmaster"
END = "# END ringmaster"


def block_of(text: str) -> str | None:
    """Return the text between the markers, or None where there is no block.

    Raises:
        ValueError: a marker is alone, or there twice.
    """
    lines = text.splitlines(keepends=True)
    span = _span(lines)
    return None if span is None else "".join(lines[span[0] + 1 : span[1]])


def with_block(text: str, block: str, *, top: bool) -> str:
    """Return `text` with the block: in its present place, or else above everything (`top`), or else at the end."""
    ours = f"{BEGIN}\n{_closed(block)}{END}\n"
    lines = text.splitlines(keepends=True)
    span = _span(lines)
    if span is not None:
        return "".join(lines[: span[0]]) + ours + "".join(lines[span[1] + 1 :])
    return ours + text if top else _closed(text) + ours


def without_block(text: str, *, final_newline: bool = True) -> str:
    """Return `text` as it was before the block; `final_newline` says whether it ended with one then."""
    lines = text.splitlines(keepends=True)
    span = _span(lines)
    if span is None:
        return text
    before, after = "".join(lines[: span[0]]), "".join(lines[span[1] + 1 :])
    return before[:-1] if not after and not final_newline else before + after


def _span(lines: list[str]) -> tuple[int, int] | None:
    """Return the numbers of the marker lines."""
    begins = [number for number, line in enumerate(lines) if line.rstrip() == BEGIN]
    ends = [number for number, line in enumerate(lines) if line.rstrip() == END]
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        raise ValueError(f"the markers '{BEGIN}' and '{END}' must be there once each, in order: correct it by hand")
    return begins[0], ends[0]


def _closed(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
