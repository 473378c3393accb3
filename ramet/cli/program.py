"""From `FILE.py[:function]` and `--args` to a program and its rows of arguments."""

from __future__ import annotations

import importlib.util
import inspect
import json
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ramet.errors import InvalidParams
from ramet.lang.run import SglFunction

SAMPLES, SAMPLE_ROWS = "SAMPLES", "sample_rows"  # a list, or a function that gives one: rows of arguments that a file may bring along

MAX_SHOWN_LEN = 200  # characters of a wrong value that an error shows


class ProgramFailed(Exception):
    """The user's own code raised; the original error is the cause. Not the command line's fault, nor its user's."""


def load_program(target: str, before_import: Callable[[], None] = lambda: None) -> tuple[SglFunction, ModuleType]:
    """The program named by `FILE.py` or `FILE.py:function`, and the module it stands in.

    The file's folder is put on the import path, as Python does for a script; `before_import` is called first, while the path is as it was.
    The module goes by a name of its own, so that a file called as a known module does not replace it.
    Raises InvalidParams when there is no such file or function, and ProgramFailed when importing the file raises.
    """
    path_text, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    path = Path(path_text)
    if not path.is_file():
        raise InvalidParams("FILE", target, "there is no such file; write FILE.py or FILE.py:function")
    before_import()
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
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParams("--args", text, f"cannot be read as text ({error})") from error
    try:
        value = json.loads(source)
    except RecursionError as error:
        raise InvalidParams("--args", _short(text), "is nested too deep") from error
    except ValueError as error:
        raise InvalidParams("--args", _short(text), f'is not JSON ({error}); write for example \'{{"question": "..."}}\'') from error
    return _checked_rows("--args", [value] if isinstance(value, dict) else value)


def check_rows(program: SglFunction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidParams when a row does not fit the program's parameters."""
    signature = inspect.signature(program.func)
    for row in rows:
        try:
            signature.bind(None, **{**row, **program.bind_arguments})
        except TypeError as error:
            raise InvalidParams(
                "--args", _short(dict(row)), f"{error}; {program.__name__} takes: {', '.join(program.arg_names) or 'nothing'}"
            ) from error


def _sample_rows(module: ModuleType) -> list[dict[str, Any]]:
    make = getattr(module, SAMPLE_ROWS, None)
    if not callable(make):
        return _checked_rows(SAMPLES, getattr(module, SAMPLES, [{}]))
    with _as_program_failed(f"{SAMPLE_ROWS}() failed"):
        rows = make()
    return _checked_rows(f"{SAMPLE_ROWS}()", rows)


def _checked_rows(where: str, rows: object) -> list[dict[str, Any]]:
    if not isinstance(rows, list | tuple) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidParams(where, _short(rows), "must be an object with an entry an argument, or a list of such objects")
    return list(rows)


def _import_file(path: Path) -> ModuleType:
    name = f"ramet program {path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidParams("FILE", str(path), "is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    with _as_program_failed(f"{path} cannot be imported"):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _as_program_failed(what: str) -> Iterator[None]:
    """What the user's own code raises in the block is a ProgramFailed, and so is its `sys.exit`."""
    try:
        yield
    except SystemExit as error:
        raise ProgramFailed(f"{what}: it called sys.exit({error.code!r})") from error
    except Exception as error:
        raise ProgramFailed(what) from error


def _short(value: object) -> object:
    """A value that an error can show on a line: itself, or an outline of it."""
    if isinstance(value, str):
        return value if len(value) <= MAX_SHOWN_LEN else value[:MAX_SHOWN_LEN] + "..."
    try:
        return value if len(repr(value)) <= MAX_SHOWN_LEN else reprlib.repr(value)
    except RecursionError:
        return reprlib.repr(value)


def _programs(module: ModuleType) -> dict[str, SglFunction]:
    """The programs of a module by name; those it only imports count when it has none of its own."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, SglFunction)}
    own = {name: value for name, value in found.items() if value.func.__module__ == module.__name__}
    return own or found
