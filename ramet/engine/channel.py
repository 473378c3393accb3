"""Messages between the threads that ask and the one thread that runs the engine's loop.

Every request has a mailbox from the moment it is accepted until its one ending is put into it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Protocol

from ramet.errors import EngineError
from ramet.messages import Abort, Chunk, Failed, Flush, GenerateRequest, Reply, Stop, Submit

Message = Submit | Abort | Flush | Stop
Delivery = Chunk | Failed | Reply


class Mailbox(Protocol):
    """Where the deliveries of a request (or of a ticket) go; `put` is called from the loop's thread and must not block."""

    def put(self, item: Delivery, /) -> None: ...


class Channel:
    """An in-process channel: a queue towards the loop, mailboxes back."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._mailboxes: dict[str | int, Mailbox] = {}
        self._lock = threading.Lock()
        self._next_ticket = 0
        self._closed_by: EngineError | None = None

    @property
    def num_open(self) -> int:
        """Requests and tickets without an ending."""
        with self._lock:
            return len(self._mailboxes)

    @property
    def closed_by(self) -> EngineError | None:
        """Why nothing is accepted any more, if so."""
        return self._closed_by

    def submit(self, requests: tuple[GenerateRequest, ...], mailboxes: tuple[Mailbox, ...]) -> None:
        """Hand over requests that belong together; raises the error that closed the channel, if it is closed."""
        with self._lock:
            self._raise_if_closed()
            for request, mailbox in zip(requests, mailboxes, strict=True):
                assert request.request_id not in self._mailboxes, f"request id {request.request_id} is taken"
                self._mailboxes[request.request_id] = mailbox
            self._inbox.put(Submit(requests))

    def is_taken(self, request_id: str) -> bool:
        """Whether an open request has this id."""
        with self._lock:
            return request_id in self._mailboxes

    def abort(self, request_id: str) -> None:
        """Cancel a request; nothing happens when it has ended."""
        self._inbox.put(Abort(request_id))

    def flush(self, mailbox: Mailbox) -> None:
        """Ask for an empty cache; the reply comes to the mailbox."""
        with self._lock:
            self._raise_if_closed()
            self._next_ticket += 1
            self._mailboxes[self._next_ticket] = mailbox
            self._inbox.put(Flush(self._next_ticket))

    def stop(self) -> None:
        """Ask the loop to end."""
        self._inbox.put(Stop())

    def receive(self, *, is_idle: bool) -> list[Message]:
        """All messages that wait; when idle, blocks until there is one."""
        messages: list[Message] = []
        if is_idle:
            messages.append(self._inbox.get())
        while True:
            try:
                messages.append(self._inbox.get_nowait())
            except queue.Empty:
                return messages

    def deliver(self, items: Iterable[Delivery]) -> None:
        """Put each item into its mailbox; an ending closes the mailbox."""
        for item in items:
            key: str | int = item.ticket if isinstance(item, Reply) else item.request_id
            is_ending = not isinstance(item, Chunk) or item.finish is not None
            with self._lock:
                mailbox = self._mailboxes.pop(key, None) if is_ending else self._mailboxes.get(key)
            assert mailbox is not None, f"{item} has no mailbox: it was ended before"
            mailbox.put(item)

    def close(self, error: EngineError) -> None:
        """Refuse everything from now on with `error`, and end what is open with it."""
        with self._lock:
            self._closed_by = error
            left = list(self._mailboxes.items())
            self._mailboxes.clear()
        for key, mailbox in left:
            mailbox.put(Reply(key, error=error) if isinstance(key, int) else Failed(key, error))

    def _raise_if_closed(self) -> None:
        if self._closed_by is not None:
            raise self._closed_by
