"""Decides which of the wanted files, blocks and JSON keys a node lacks, from the probe's facts. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

# The line above each node's piece of a text: a comment in every format that is written this way.
_HEADING = "# ringmaster "


def changed_files(
    wanted: Iterable[Mapping[str, Any]], present: Mapping[str, Mapping[str, Any] | None]
) -> list[dict[str, Any]]:
    """Return those of `wanted` that differ from `present`, as `ringmaster_files` takes them.

    Each has `path` and either `text`, or `head` and below it `pieces` (text by node; None keeps the node's present
    text), and whatever else `ringmaster_files` takes. `present` is the probe's `files`: the text of our block or of the
    whole file, by path.
    """
    return [one for one in (_complete(file, present.get(file["path"])) for file in wanted) if one is not None]


def _complete(file: Mapping[str, Any], present: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the file with its text, or None where nothing differs."""
    here = (present or {}).get("text")
    text = file["text"] if "text" in file else file.get("head", "") + _joined(file["pieces"], here or "")
    text = text if not text or text.endswith("\n") else text + "\n"
    full = {"how": "file", "top": False, "mode": "0644", "owner": "root", **file, "text": text}
    full = {key: value for key, value in full.items() if key not in ("pieces", "head")}
    return None if _is_so(full, present, here) else full


def _is_so(file: Mapping[str, Any], present: Mapping[str, Any] | None, here: str | None) -> bool:
    if file["how"] == "json":
        wanted, keys = json.loads(file["text"]), _keys(here)
        return keys is not None and all(key in keys and keys[key] == value for key, value in wanted.items())
    if here is None or present is None:
        return file["how"] == "block" and not file["text"]
    if file["how"] == "block":
        return bool(here == file["text"])
    return bool(here == file["text"] and present["mode"] == file["mode"] and present["owner"] == file["owner"])


def _keys(text: str | None) -> dict[str, Any] | None:
    """Return a JSON file's keys; None where they can't be read (the task then says so)."""
    try:
        keys = json.loads(text or "{}")
    except ValueError:
        return None
    return keys if isinstance(keys, dict) else None


def _joined(pieces: Mapping[str, str | None], here: str) -> str:
    stood = _pieces(here)
    texts = {node: stood.get(node, "") if text is None else text for node, text in pieces.items()}
    return "".join(f"{_HEADING}{node}\n{text}" for node, text in texts.items() if text)


def _pieces(text: str) -> dict[str, str]:
    """Return the text below each node's heading."""
    pieces: dict[str, str] = {}
    node = None
    for line in text.splitlines(keepends=True):
        if line.startswith(_HEADING):
            node = line[len(_HEADING) :].strip()
            pieces[node] = ""
        elif node is not None:
            pieces[node] += line
    return pieces


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"changed_files": changed_files}
