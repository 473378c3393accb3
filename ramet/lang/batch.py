"""Many rows through one function: threads, order, progress, errors."""

from __future__ import annotations

import contextvars
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

from ramet.errors import InvalidParams, ProgramError

Row = TypeVar("Row")
Result = TypeVar("Result")


def run_rows(
    run: Callable[[Row], Result],
    rows: Sequence[Row],
    *,
    num_threads: int | str,
    max_num_ahead: int,
    has_progress_bar: bool,
    return_errors: bool,
) -> Iterator[Result | Exception]:
    """Yield `run(row)` for every row, in order; at most `max_num_ahead` rows (or one a thread) run ahead of the one yielded next.

    The first row that fails ends it: rows that run are waited for, and the error is raised. With `return_errors` it is yielded instead.
    Raises InvalidParams for a bad number of threads, before anything runs.
    """
    num_workers = min(count_threads(num_threads), max(len(rows), 1))
    context = contextvars.copy_context()  # who observes the caller observes the rows

    def run_one(index: int) -> Result | Exception:
        try:
            return context.copy().run(run, rows[index])
        except Exception as error:
            error.add_note(f"row {index} of run_batch")
            if return_errors:
                return error
            if isinstance(error, StopIteration):  # it would end the iterator that yields the rows
                raise ProgramError(f"row {index} of run_batch raised StopIteration") from error
            raise

    if num_workers == 1:
        return _one_by_one(run_one, len(rows), has_progress_bar)
    return _in_parallel(run_one, len(rows), num_workers, max(max_num_ahead, num_workers), has_progress_bar)


def count_threads(num_threads: int | str) -> int:
    """The number of threads meant; raises InvalidParams for anything but `auto` or an integer of at least 1."""
    if num_threads == "auto":
        return max(96, 16 * (os.cpu_count() or 1))
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
        raise InvalidParams("num_threads", num_threads, 'must be "auto" or an integer of at least 1')
    return num_threads


def _one_by_one(run_one: Callable[[int], Any], num_rows: int, has_progress_bar: bool) -> Iterator[Any]:
    with _Progress(num_rows, has_progress_bar) as progress:
        for index in range(num_rows):
            result = run_one(index)
            progress.step()
            yield result


def _in_parallel(
    run_one: Callable[[int], Any], num_rows: int, num_workers: int, max_num_ahead: int, has_progress_bar: bool
) -> Iterator[Any]:
    pending: deque[Future[Any]] = deque()
    finished: SimpleQueue[Future[Any]] = SimpleQueue()
    next_index = 0
    with _Progress(num_rows, has_progress_bar) as progress, ThreadPoolExecutor(num_workers, thread_name_prefix="ramet-row") as pool:
        try:
            while pending or next_index < num_rows:
                while next_index < num_rows and len(pending) < max_num_ahead:
                    pending.append(pool.submit(run_one, next_index))
                    pending[-1].add_done_callback(finished.put)
                    next_index += 1
                while not pending[0].done():
                    finished.get().result()  # raises the error of a failed row, whichever it is
                result = pending.popleft().result()
                progress.step()
                yield result
        finally:
            for future in pending:  # a row failed, or the caller stopped reading
                future.cancel()


class _Progress:
    """A tqdm bar, or nothing."""

    def __init__(self, num_rows: int, is_wanted: bool) -> None:
        self._bar: Any = None
        if is_wanted:
            from tqdm import tqdm

            self._bar = tqdm(total=num_rows)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self) -> None:
        """One row is done."""
        if self._bar is not None:
            self._bar.update()
