"""A job as a file (JOB): `make train`'s variables in TOML, read from what a user wrote, and written beside a plan.

Both ways go by the fields of `TrainOptions` and by their lines in options.txt, so a new option is there by itself.
"""

import difflib
import json
import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.commands.flags import flags_of
from launcher.commands.options import TrainOptions

NAME = "job.toml"
_PATHS = frozenset({"script", "data", "secrets", "inventory", "code"})
_RANK_PYTHON = "rank_python"
_PATHS_OR_NAMES = frozenset({"resume", _RANK_PYTHON})
"""Paths where there is a slash in them; a Python also where there is one of that name."""
_WORDS, _VARIABLES, _DEVICES = "args", "env", "gpus"
"""Options that may be an array of words, a table of variables, an array of devices."""
_PROGRAM = frozenset({"script", "module"})
"""Options that name what runs: a job has one of them."""
_NUMBERS = frozenset({"nodes", "ranks"})
_NOT_OF_A_JOB = frozenset({"job", "name", "dry_run"})
"""What another run of the same job doesn't have in common with this one."""


def with_job_file(options: TrainOptions) -> TrainOptions:
    """Return the options, with those of the file that JOB names where nothing was typed.

    Raises:
        RingmasterError: the file can't be used.
    """
    if not options.job:
        return options
    path = caller.absolute(options.job)
    given = _read(options.job, path)
    if options.script or options.module:  # a program that is typed takes the place of the file's, however that is named
        given = {name: text for name, text in given.items() if name not in _PROGRAM}
    return replace(options, **{name: text for name, text in given.items() if not getattr(options, name)})


def to_toml(options: TrainOptions, *, inventory: Path, continues: str) -> str:
    """Return a job's options as a file, with absolute paths, which starts the same job again under another name.

    Args:
        inventory: the one that the job had, also where none was given.
        continues: the job that it continues from, as RESUME would name it; `latest` will soon be another.

    Raises:
        ValueError: an option holds bytes that are not UTF-8, which TOML can't.
    """
    effective = replace(options, inventory=str(inventory), resume=continues)
    lines, tables = [], []
    for field in fields(effective):
        text = getattr(effective, field.name)
        if not text or field.name in _NOT_OF_A_JOB:
            continue
        if field.name == _VARIABLES:
            pairs = [word.partition("=")[::2] for word in shlex.split(text)]
            tables = ["", f"[{_VARIABLES}]", *(f"{name} = {_string(value)}" for name, value in pairs)]
        else:
            lines.append(f"{field.name} = {_value(field.name, text)}")
    return "\n".join([*lines, *tables, ""])


def _value(name: str, text: str) -> str:
    if name == _WORDS:
        return f"[{', '.join(map(_string, shlex.split(text)))}]"
    if name in _NUMBERS and text == str(int(text)):
        return text
    if name in _switches() and text in {"0", "1"}:
        return "true" if text == "1" else "false"
    path = caller.absolute(text)
    return _string(str(path) if _is_path(name, text, path) else text)


def _string(text: str) -> str:
    """Return a TOML string: JSON's escapes are valid there, and only DEL is not to be written as it is."""
    text.encode()  # raises UnicodeEncodeError for bytes that are not UTF-8
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(given: str, path: Path) -> dict[str, str]:
    """Return the options in a file as they would be typed; no message shows a value, which may be a secret.

    Raises:
        RingmasterError: the file can't be read, is no TOML, or has names or values that are no option's.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        way = f"; did you mean {given.rstrip('/')}/{NAME}?" if (path / NAME).is_file() else ""
        where = "" if path.exists() else caller.looked_in(given)
        raise RingmasterError(f"JOB={given}: can't be read ({error.strerror}{where}){way}") from error
    except ValueError as error:  # TOMLDecodeError names the line
        what = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"is not TOML: {error}"
        raise RingmasterError(f"JOB={given}: {what}") from error
    known = [field.name for field in fields(TrainOptions) if field.name != "job"]
    texts = {}
    for name, value in content.items():
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            way = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise RingmasterError(f"JOB={given}: there is no '{name}'; {way}")
        try:
            texts[name] = _text(name, value)
        except ValueError as error:
            raise RingmasterError(f"JOB={given}: {name} {error}") from error
        if "\0" in texts[name]:
            raise RingmasterError(f"JOB={given}: {name} holds a zero byte, which no variable can")
    return {name: _from_folder(path.parent, name, text) for name, text in texts.items()}


def _from_folder(folder: Path, name: str, text: str) -> str:
    """Return a path with its folder, if it is relative to the file's."""
    is_path = bool(text) and not text.startswith("~") and _is_path(name, text, folder / text)
    return str(folder / text) if is_path else text


def _is_path(name: str, text: str, path: Path) -> bool:
    """Return whether an option's value is a path; `path` is what it would be."""
    if name in _PATHS:
        return True
    return name in _PATHS_OR_NAMES and ("/" in text or (name == _RANK_PYTHON and path.exists()))


def _text(name: str, value: Any) -> str:
    """Return a value as it would be typed.

    Raises:
        ValueError: it has a type that the option can't have; the message says which it can.
    """
    if isinstance(value, str):
        return value
    if name == _WORDS:
        return shlex.join(_words(value))
    if name == _VARIABLES:
        return shlex.join(f"{key}={_scalar(each)}" for key, each in _table(value).items())
    if name in _switches():
        return _switch(value)
    if name == _DEVICES and isinstance(value, list):
        if not value:
            raise ValueError("names no device: 0 means none, 'all' all of them")
        return "".join(f"{word}," for word in _words(value))
    if name in _PATHS | _PATHS_OR_NAMES:
        raise ValueError("must be a string")
    if name in _NUMBERS and type(value) is not int:
        raise ValueError("must be a whole number")
    return _scalar(value)


def _words(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError("must be a string, or an array of strings and numbers")
    return [_scalar(each) for each in value]


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a string, or a table of variables")
    return value


def _switch(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if type(value) is int:
        return str(value)
    raise ValueError("must be true or false, or a string")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise ValueError("has a value that is neither a string nor a number")


@cache
def _switches() -> frozenset[str]:
    """Return the options that are on or off: their help begins with what 1 means."""
    return frozenset(name for name, text in flags_of("train").items() if text.startswith("1:"))
