"""The engine's one loop, in its own thread."""

from __future__ import annotations

import logging
import threading

from ramet.engine.channel import Channel, Delivery
from ramet.engine.core import EngineCore
from ramet.errors import EngineBusy, EngineClosed, EngineDied
from ramet.messages import Abort, Flush, Reply, Stop, Submit

logger = logging.getLogger(__name__)


class EngineLoop(threading.Thread):
    """Takes messages, runs steps, delivers what comes out. If it ends, for whatever reason, every open request ends with an error."""

    def __init__(self, core: EngineCore, channel: Channel) -> None:
        super().__init__(name="ramet-engine", daemon=True)
        self._core = core
        self._channel = channel

    def run(self) -> None:
        """The thread's body."""
        try:
            while self._turn():
                pass
            self._channel.close(EngineClosed("the engine was shut down; make a new one"))
        except BaseException as error:
            logger.exception("the engine's loop died")
            died = EngineDied(f"the engine's loop died: {type(error).__name__}: {error}")
            died.__cause__ = error
            self._channel.close(died)

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
