"""Watching a program live: what its streams do, as frozen records given to a function.

    with observing(events.append):
        state = program.run(...)

The observer is called by the threads that run the streams, possibly several at once: it must be thread-safe, quick, and must not wait
for the streams it watches (a read that would wait for itself raises ProgramError). If it raises, that error ends the program like any
failure of the program itself. While someone observes, text is generated piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A stream began; `role` is `program`, `fork` or `copy`, `index` its place among its siblings."""

    stream_id: str
    parent_id: str | None
    index: int
    role: str


@dataclass(frozen=True, slots=True)
class TextAppended:
    """The prompt grew; `name` is the variable that the text is generated for, if it is generated and has one."""

    stream_id: str
    text: str
    is_generated: bool
    name: str | None


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A call of the backend begins; `label` is the node's printed form."""

    stream_id: str
    label: str
    name: str | None


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A call of the backend has ended; with several samples `meta_info` is that of the first."""

    stream_id: str
    label: str
    name: str | None
    meta_info: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class VariableSet:
    """A variable has its value."""

    stream_id: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class StreamJoined:
    """The stream was joined into its parent."""

    stream_id: str
    parent_id: str


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream ended; `error` is what ended it early, if something did."""

    stream_id: str
    error: BaseException | None


Event = StreamOpened | TextAppended | NodeStarted | NodeFinished | VariableSet | StreamJoined | StreamClosed
Observer = Callable[[Event], None]

_observer: ContextVar[Observer | None] = ContextVar("ramet_observer", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Programs that start inside the block report to `observer` until they end; their forks inherit it."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def current_observer() -> Observer | None:
    """Who observes programs that start now."""
    return _observer.get()
