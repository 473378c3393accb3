"""From `FILE.py[:function]` and `--args` to a program and its rows of arguments."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ramet.errors import InvalidParams
from ramet.lang.run import SglFunction

SAMPLES, SAMPLE_ROWS = "SAMPLES", "sample_rows"  # a list, or a function that gives one: rows of arguments that a file may bring along


class ProgramFailed(Exception):
    """The user's own code raised; the original error is the cause. Not the command line's fault, nor its user's."""


def load_program(target: str) -> tuple[SglFunction, ModuleType]:
    """The program named by `FILE.py` or `FILE.py:function`, and the module it stands in.

    The file's folder is put on the import path, as Python does for a script.
    Raises InvalidParams when there is no such file or function, and ProgramFailed when importing the file raises.
    """
    path_text, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    path = Path(path_text)
    if not path.is_file():
        raise InvalidParams("FILE", target, "there is no such file; write FILE.py or FILE.py:function")
    module = _import_file(path)
    programs = _programs(module)
    known = ", ".join(programs) or "none; decorate one with @ramet.function"
    if name:
        if name not in programs:
            raise InvalidParams("FILE", target, f"{path.name} has no program of this name; it has: {known}")
        return programs[name], module
    if len(programs) != 1:
        raise InvalidParams("FILE", target, f"name the program as {path.name}:function; {path.name} has: {known}")
    return next(iter(programs.values())), module


def read_rows(text: str | None, module: ModuleType) -> list[dict[str, Any]]:
    """The rows of arguments: from `--args`, else the file's own `SAMPLES` or `sample_rows()`, else one empty row.

    `text` is a JSON object, a JSON list of objects, or `@file` that holds one of them.
    Raises InvalidParams when it is neither, and ProgramFailed when `sample_rows` raises.
    """
    if text is None:
        return _sample_rows(module)
    source = text
    if text.startswith("@"):
        path = Path(text[1:])
        if not path.is_file():
            raise InvalidParams("--args", text, "there is no such file")
        source = path.read_text(encoding="utf-8")
    try:
        value = json.loads(source)
    except json.JSONDecodeError as error:
        raise InvalidParams("--args", text, f'is not JSON ({error}); write for example \'{{"question": "..."}}\'') from error
    return _checked_rows("--args", [value] if isinstance(value, dict) else value)


def check_rows(program: SglFunction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidParams when a row does not fit the program's parameters."""
    signature = inspect.signature(program.func)
    for row in rows:
        try:
            signature.bind(None, **{**row, **program.bind_arguments})
        except TypeError as error:
            raise InvalidParams(
                "--args", dict(row), f"{error}; {program.__name__} takes: {', '.join(program.arg_names) or 'nothing'}"
            ) from error


def _sample_rows(module: ModuleType) -> list[dict[str, Any]]:
    make = getattr(module, SAMPLE_ROWS, None)
    if not callable(make):
        return _checked_rows(SAMPLES, getattr(module, SAMPLES, [{}]))
    try:
        rows = make()
    except Exception as error:
        raise ProgramFailed(f"{SAMPLE_ROWS}() failed") from error
    return _checked_rows(f"{SAMPLE_ROWS}()", rows)


def _checked_rows(where: str, rows: object) -> list[dict[str, Any]]:
    if not isinstance(rows, list | tuple) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidParams(where, rows, "must be an object with an entry an argument, or a list of such objects")
    return list(rows)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidParams("FILE", str(path), "is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ProgramFailed(f"{path} cannot be imported") from error
    return module


def _programs(module: ModuleType) -> dict[str, SglFunction]:
    """The programs of a module by name; those it only imports count when it has none of its own."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, SglFunction)}
    own = {name: value for name, value in found.items() if value.func.__module__ == module.__name__}
    return own or found
