"""Messages between the threads that ask and the one thread that runs the engine's loop.

Every request has a mailbox from the moment it is accepted until its one ending is put into it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from ramet.errors import EngineClosed, EngineError, InvalidParams
from ramet.messages import Abort, Ask, Chunk, Failed, Flush, GenerateRequest, Reply, Stop, Submit

Message = Submit | Abort | Ask | Flush | Stop
Delivery = Chunk | Failed | Reply


class Mailbox(Protocol):
    """Where the deliveries of a request (or of a ticket) go; `put` is called from the loop's thread and must not block."""

    def put(self, item: Delivery, /) -> None: ...


class Mailboxes:
    """The open requests of one engine and their mailboxes; used from many threads."""

    def __init__(self) -> None:
        self._mailboxes: dict[str | int, Mailbox] = {}
        self._lock = threading.Lock()
        self._next_ticket = 0
        self._closed_by: EngineError | None = None
        self._process_id = os.getpid()

    @property
    def closed_by(self) -> EngineError | None:
        """The error that everything is refused with since the end."""
        return self._closed_by

    @property
    def num_open(self) -> int:
        """Requests and tickets without an ending."""
        with self._lock:
            return len(self._mailboxes)

    def open(self, request_ids: Sequence[str], mailboxes: Sequence[Mailbox]) -> None:
        """Take in requests that belong together, all or none.

        Raises InvalidParams when one of their ids is taken, and the error that closed the engine, if it is closed.
        """
        self._raise_if_closed()  # before the lock, which a fork may have copied while someone held it
        with self._lock:
            self._raise_if_closed()
            seen: set[str] = set()
            for request_id in request_ids:
                if request_id in self._mailboxes or request_id in seen:
                    raise InvalidParams("rid", request_id, "an open request has this id")
                seen.add(request_id)
            self._mailboxes.update(zip(request_ids, mailboxes, strict=True))

    def open_ticket(self, mailbox: Mailbox) -> int:
        """A ticket whose reply goes to the mailbox; raises the error that closed the engine, if it is closed."""
        self._raise_if_closed()
        with self._lock:
            self._raise_if_closed()
            self._next_ticket += 1
            self._mailboxes[self._next_ticket] = mailbox
            return self._next_ticket

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
            mailbox.put(Reply(key, error=_again(error)) if isinstance(key, int) else Failed(key, _again(error)))

    def _raise_if_closed(self) -> None:
        if self._process_id != os.getpid():
            raise EngineClosed(
                f"this engine belongs to process {self._process_id}; its loop does not run in a forked copy: make an engine after the fork"
            )
        if self._closed_by is not None:
            raise _again(self._closed_by)


class Channel:
    """An in-process channel: a queue towards the loop, mailboxes back."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._mailboxes = Mailboxes()

    @property
    def closed_by(self) -> EngineError | None:
        """The error that everything is refused with since the channel was closed."""
        return self._mailboxes.closed_by

    @property
    def num_open(self) -> int:
        """Requests and tickets without an ending."""
        return self._mailboxes.num_open

    def submit(self, requests: tuple[GenerateRequest, ...], mailboxes: tuple[Mailbox, ...]) -> None:
        """Hand over requests that belong together; see `Mailboxes.open`."""
        self._mailboxes.open([request.request_id for request in requests], mailboxes)
        self._inbox.put(Submit(requests))

    def abort(self, request_id: str) -> None:
        """Cancel a request; nothing happens when it has ended."""
        self._inbox.put(Abort(request_id))

    def ask(self, what: str, mailbox: Mailbox) -> None:
        """Ask the loop for `flush`, `info` or `tree`; the reply comes to the mailbox."""
        ticket = self._mailboxes.open_ticket(mailbox)
        self._inbox.put(Flush(ticket) if what == "flush" else Ask(ticket, what))

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
        """See `Mailboxes.deliver`."""
        self._mailboxes.deliver(items)

    def close(self, error: EngineError) -> None:
        """See `Mailboxes.close`."""
        self._mailboxes.close(error)


def _again(error: EngineError) -> EngineError:
    """The same error as an object of its own: a raised one collects the traceback of everyone who catches it."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
