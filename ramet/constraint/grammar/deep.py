"""Work that recurses deeply in C, on a thread with a stack that is large enough for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from ramet.constraint.limits import Source

Result = TypeVar("Result")

# llguidance recurses from rule to rule: with 8 MiB it ends the process at a chain of 2,500 rules or 900 schemas, 3 to 9 KiB for each.
MAX_DEPTH: Final = 10_000  # of rules one inside the other, at most; a schema counts as RULES_PER_SCHEMA
RULES_PER_SCHEMA: Final = 3
_STACK_BYTES: Final = 128 << 20  # of address space, while it works
_STACK_LOCK: Final = threading.Lock()


def check_depth(depth: int, source: Source) -> None:
    """Raise InvalidConstraint for rules that could stand one inside the other deeper than the stack allows."""
    if depth > MAX_DEPTH:
        raise source.error(f"its parts may nest {depth} deep, more than the limit of {MAX_DEPTH}: make fewer rules or schemas")


def on_deep_stack(work: Callable[[], Result]) -> Result:
    """What `work` returns or raises, run on a thread of its own."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="ramet-grammar", daemon=True)
    with _STACK_LOCK:  # the size is one for all threads that start meanwhile
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return done.result()
