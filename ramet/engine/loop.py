"""The engine's one loop, in its own thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from ramet.engine.channel import Delivery, Message
from ramet.engine.core import EngineCore
from ramet.engine.info import core_info, tree_info
from ramet.errors import EngineBusy, EngineClosed, EngineDied, EngineError
from ramet.messages import Abort, Ask, Flush, Reply, Stop, Submit

logger = logging.getLogger(__name__)


class LoopSide(Protocol):
    """The loop's end of a channel: a queue in process, or sockets between processes."""

    def receive(self, *, is_idle: bool) -> list[Message]:
        """All messages that wait; when idle, blocks until there is one."""

    def deliver(self, items: Iterable[Delivery]) -> None:
        """Send what came out of a step."""

    def close(self, error: EngineError) -> None:
        """End everything that is open with this error, and refuse all that comes later."""


class EngineLoop(threading.Thread):
    """Takes messages, runs steps, delivers what comes out. If it ends, for whatever reason, every open request ends with an error."""

    def __init__(self, core: EngineCore, channel: LoopSide) -> None:
        super().__init__(name="ramet-engine", daemon=True)
        self._core = core
        self._channel = channel
        self.ended_by: EngineError | None = None

    def run(self) -> None:
        """The thread's body."""
        try:
            while self._turn():
                pass
            self._end(EngineClosed("the engine was shut down; make a new one"))
        except BaseException as error:
            logger.exception("the engine's loop died")
            died = EngineDied(f"the engine's loop died: {type(error).__name__}: {error}")
            died.__cause__ = error
            self._end(died)

    def _end(self, error: EngineError) -> None:
        self.ended_by = error
        self._channel.close(error)

    def _turn(self) -> bool:
        """One round: messages, then a step. False when the loop is to end."""
        out: list[Delivery] = []
        for message in self._channel.receive(is_idle=not self._core.has_work):
            if isinstance(message, Submit):
                out.extend(self._core.submit(message.requests))
            elif isinstance(message, Abort):
                out.extend(self._core.abort(message.request_id))
            elif isinstance(message, Flush):
                out.append(self._flush(message))
            elif isinstance(message, Ask):
                out.append(Reply(message.ticket, value=_ANSWERS[message.what](self._core)))
            else:
                assert isinstance(message, Stop)
                self._channel.deliver(out)
                return False
        if self._core.has_work:
            out.extend(self._core.step())
        self._channel.deliver(out)
        if not self._core.has_work:
            self._core.check()
        return True

    def _flush(self, message: Flush) -> Reply:
        try:
            return Reply(message.ticket, value=self._core.flush())
        except EngineBusy as error:
            return Reply(message.ticket, error=error)


_ANSWERS: Final[Mapping[str, Callable[[EngineCore], dict[str, Any]]]] = {"info": core_info, "tree": tree_info}
