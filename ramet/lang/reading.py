"""Reading a stream while it grows: text or one variable, piece by piece, blocking or with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from ramet.lang.stream import Stream
from ramet.lang.variables import Cell


class Reader(Protocol):
    """Gives what is new since the last look."""

    def poll(self) -> tuple[list[tuple[str, Any]], bool]:
        """New (text, meta info) pairs and whether they are the last; the stream's lock is held. Raises what a read raises."""


class TextReader:
    """The whole text, constants included; in one piece unless the program is streaming."""

    def __init__(self, stream: Stream, is_outside: bool) -> None:
        self._stream = stream
        self._is_outside = is_outside
        self._position = 0

    def poll(self) -> tuple[list[tuple[str, Any]], bool]:
        is_over = not self._stream.is_failed and self._stream.is_drained(self._is_outside)
        is_whole = not self._stream.context.is_streaming
        text = "" if is_whole and not is_over else self._stream.text_so_far()
        delta, self._position = text[self._position :], len(text)
        if not delta:
            self._stream.raise_if_failed()
            if not is_over:
                self._stream.refuse_own_wait(self._is_outside)
        return [(delta, None)] if delta else [], is_over


class VariableReader:
    """The text of the generation that was the last of its name when it was first found."""

    def __init__(self, stream: Stream, name: str, is_outside: bool) -> None:
        self._stream = stream
        self._name = name
        self._is_outside = is_outside
        self._cell: Cell | None = None
        self._num_read = 0

    def poll(self) -> tuple[list[tuple[str, Any]], bool]:
        if self._cell is None:
            self._cell = self._stream.find_cell(self._name, self._is_outside)
        if self._cell is None:
            self._stream.refuse_own_wait(is_outside=True)
            return [], False
        pieces = self._cell.pieces[self._num_read :]
        self._num_read += len(pieces)
        if not pieces and not self._cell.is_done:
            self._stream.raise_if_failed()
            self._stream.refuse_own_wait(is_outside=False)
        return pieces, self._cell.is_done


def read_pieces(stream: Stream, reader: Reader) -> Iterator[tuple[str, Any]]:
    """Yield (text, meta info) as it comes, waiting in between. Raises StreamFailed and UnknownVariable."""
    is_over = False
    while not is_over:
        with stream.changed:
            pieces, is_over = reader.poll()
            while not pieces and not is_over:
                stream.changed.wait()
                pieces, is_over = reader.poll()
        yield from pieces


async def read_pieces_async(stream: Stream, reader: Reader) -> AsyncIterator[tuple[str, Any]]:
    """`read_pieces` for asyncio: waits without holding a thread."""
    loop = asyncio.get_running_loop()
    has_changed = asyncio.Event()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(has_changed.set)
        except RuntimeError:
            if not loop.is_closed():  # a closed loop has no one left to wake
                raise

    stream.add_listener(wake)
    try:
        is_over = False
        while not is_over:
            has_changed.clear()
            with stream.changed:
                pieces, is_over = reader.poll()
            for piece in pieces:
                yield piece
            if not pieces and not is_over:
                await has_changed.wait()
    finally:
        stream.remove_listener(wake)
