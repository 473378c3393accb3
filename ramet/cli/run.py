"""`ramet run`: a program over its rows of arguments on one engine, watched while it runs."""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Protocol

from rich.console import Console

from ramet.cli.counts import RunCounts
from ramet.cli.forest import Forest
from ramet.cli.output import OutputLost
from ramet.cli.program import ProgramFailed, check_rows, load_program, read_rows
from ramet.cli.report import to_json
from ramet.cli.view import LineView, TreeView, View, counts_table
from ramet.lang.observe import Event, observing
from ramet.lang.run import SglFunction
from ramet.params import SamplingParams

REFRESH_S = 0.08
GRACE_S = 5.0  # how long an interrupted program may take to notice


class RunEngine(Protocol):
    """What `ramet run` needs of an engine, beside being a backend of the language."""

    def get_server_info(self) -> dict[str, Any]:
        """Options, sizes and counters."""

    def shutdown(self) -> None:
        """End it; open requests fail."""


StartEngine = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row: what the program made of its arguments, or the error that ended it."""

    arguments: dict[str, Any]
    text: str | None
    variables: dict[str, Any]
    value: Any  # what the function returned
    error: str | None


def run_program(
    start_engine: StartEngine,
    target: str,
    args: str | None,
    options: Mapping[str, Any],
    sampling: Mapping[str, Any],
    *,
    console: Console,
    is_live: bool,
    is_json: bool,
    before_import: Callable[[], None] = lambda: None,
) -> None:
    """Load a program, start an engine, run every row, and show or print what came out.

    `options` are the engine's; `sampling` holds for every gen that does not give its own values. `before_import` is called before the file
    is imported.

    Raises RametError for a wrong argument or option, ProgramFailed when a row failed; KeyboardInterrupt, and OutputLost when the console
    can no longer be written to, after the engine is shut down.
    """
    program, module = load_program(target, before_import)
    rows = read_rows(args, module)
    check_rows(program, rows)
    SamplingParams.from_mapping(sampling)  # a wrong value is refused before a model is loaded
    with _status(console, "loading the model", is_live):
        engine = start_engine(options)
    try:
        forest = Forest()
        view = _view(console, forest, program, is_live, is_json)
        before, start_time_s = engine.get_server_info(), time.perf_counter()
        with view:
            states = _run_rows(functools.partial(program.run_batch, rows, **sampling), len(rows), engine, forest, view)
        counts = RunCounts.between(before, engine.get_server_info(), time.perf_counter() - start_time_s)
    finally:
        engine.shutdown()
    results = [_result(row, state, forest) for row, state in zip(rows, states, strict=True)]
    if is_json:
        runs = [{item.name: getattr(result, item.name) for item in fields(result)} for result in results]
        console.file.write(to_json({"program": program.__name__, "runs": runs, "counts": counts.to_json()}) + "\n")
        console.file.flush()
    else:
        console.print(counts_table(counts, console.width))
    errors = [state for state in states if isinstance(state, BaseException)]
    if errors:
        raise ProgramFailed(f"{program.__name__} failed in {len(errors)} of {len(rows)} runs") from errors[0]


def _run_rows(run_batch: Callable[..., list[Any]], num_rows: int, engine: RunEngine, forest: Forest, view: View) -> list[Any]:
    """The finished state of each row, or its error. Rows run in a thread, so that this one can draw and be interrupted."""
    outcome: list[Any] = []
    lost: list[OutputLost] = []  # not the program's failure, and so not raised inside it
    is_done = threading.Event()

    def observe(event: Event) -> None:
        forest(event)
        try:
            if not lost:
                view(event)
        except OutputLost as error:
            lost.append(error)

    def work() -> None:
        try:
            with observing(observe):
                outcome.extend(run_batch(backend=engine, return_errors=True))
        except BaseException as error:
            outcome.extend([error] * num_rows)
        finally:
            is_done.set()

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="ramet-run", daemon=True).start()
    try:
        while not is_done.wait(REFRESH_S):
            view.refresh()
            if lost:
                raise lost[0]
    except (KeyboardInterrupt, OutputLost):
        engine.shutdown()  # every open request fails, and with it the program that waits for it
        is_done.wait(GRACE_S)
        raise
    if lost:
        raise lost[0]
    return outcome


def _result(row: dict[str, Any], state: Any, forest: Forest) -> RowResult:
    if isinstance(state, BaseException):
        return RowResult(row, None, {}, None, f"{type(state).__name__}: {state}")
    variables = dict(forest.branch(state.stream_executor.stream_id).variables)
    return RowResult(row, state.text(), variables, state.ret_value, None)


def _view(console: Console, forest: Forest, program: SglFunction, is_live: bool, is_json: bool) -> View:
    if is_json:
        return View()
    return TreeView(console, forest, program.__name__) if is_live else LineView(console, forest)


def _status(console: Console, what: str, is_live: bool) -> AbstractContextManager[Any]:
    return console.status(what) if is_live else nullcontext()
