"""Mailboxes: one for threads that wait, one for asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from collections import deque

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


class Feeder:
    """Carries deliveries into one event loop: however many come in a step of the engine, the loop is woken once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # feeders are kept by loop, and must not keep it
        self._pending: deque[tuple[AsyncMailbox, Delivery]] = deque()
        self._lock = threading.Lock()
        self._is_woken = False

    def put(self, mailbox: AsyncMailbox, item: Delivery) -> None:
        """Called by any thread; an event loop that has closed has no one left to read."""
        with self._lock:
            self._pending.append((mailbox, item))
            if self._is_woken:
                return
            self._is_woken = True
        loop = self._loop()
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._feed)
        except RuntimeError:
            if not loop.is_closed():
                raise

    def _feed(self) -> None:
        with self._lock:
            self._is_woken = False
            items = list(self._pending)
            self._pending.clear()
        for mailbox, item in items:
            mailbox.take(item)


class AsyncMailbox:
    """Deliveries of one or several requests, read by one task of the feeder's event loop."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._items: list[Delivery] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Delivery, /) -> None:
        """Called by the engine's thread."""
        self._feeder.put(self, item)

    def take(self, item: Delivery) -> None:
        """Called on the event loop."""
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> list[Delivery]:
        """Wait for deliveries, and take all that are there."""
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        items, self._items = self._items, []
        return items


def chunk_of(item: Delivery, open_ids: set[str]) -> Chunk:
    """The delivery as a chunk; an ending takes its id out of `open_ids`. Raises the error of a failed request."""
    if isinstance(item, Failed):
        open_ids.discard(item.request_id)
        raise item.error
    assert isinstance(item, Chunk), f"{item} is no delivery of a request"
    if item.finish is not None:
        open_ids.discard(item.request_id)
    return item
