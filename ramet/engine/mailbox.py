"""Mailboxes: one for threads that wait, one for asyncio."""

from __future__ import annotations

import asyncio
import queue

from ramet.engine.channel import Delivery
from ramet.messages import Chunk, Failed


class ThreadMailbox:
    """Deliveries of one or several requests, read by one waiting thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delivery] = queue.SimpleQueue()

    def put(self, item: Delivery, /) -> None:
        """Called by the loop's thread."""
        self._queue.put(item)

    def get(self) -> Delivery:
        """Wait for the next delivery. It comes: a loop that dies fails every open request."""
        return self._queue.get()


class AsyncMailbox:
    """Deliveries of one or several requests, read by one task of the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()

    def put(self, item: Delivery, /) -> None:
        """Called by the engine's thread; an event loop that has closed has no one left to read."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def get(self) -> Delivery:
        """Wait for the next delivery."""
        return await self._queue.get()


def chunk_of(item: Delivery, open_ids: set[str]) -> Chunk:
    """The delivery as a chunk; an ending takes its id out of `open_ids`. Raises the error of a failed request."""
    if isinstance(item, Failed):
        open_ids.discard(item.request_id)
        raise item.error
    assert isinstance(item, Chunk), f"{item} is no delivery of a request"
    if item.finish is not None:
        open_ids.discard(item.request_id)
    return item
