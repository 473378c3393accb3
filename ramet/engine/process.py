"""The engine's process: the same loop as in `Engine`, with sockets in place of the queue.

    reader thread   socket -> messages -> inbox         (a constraint is compiled by a worker before its request goes on)
    main thread     inbox -> loop -> deliveries -> socket

It ends when it is told to, when its loop dies, and when the process that started it is gone: the standard input, which that process
holds open, then ends.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import zmq

from ramet.config import Config
from ramet.engine.assemble import assemble
from ramet.engine.channel import Delivery, Message
from ramet.engine.guide import Guides
from ramet.engine.loop import EngineLoop
from ramet.engine.wire import ClosedFrame, FromEngine, ReadyFrame, decode_to_engine, encode, error_record, out_frame
from ramet.errors import EngineClosed, EngineError, InvalidRequest
from ramet.messages import Abort, Failed, Stop, Submit

logger = logging.getLogger(__name__)

_NUM_COMPILERS: Final = 2
ENDED, FAILED = 0, 1  # exit codes


class Orders(msgspec.Struct, frozen=True):
    """What the starting process writes as the first line of the standard input."""

    options: dict[str, object]
    requests_address: str
    deliveries_address: str


class SocketChannel:
    """The loop's side of the sockets; `post` may be called from any thread."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # the other side always reads; what it holds is bounded by its own limits
        self._socket.connect(address)
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def post(self, frame: FromEngine) -> None:
        """Send a frame to the serving process."""
        data = encode(frame)
        with self._lock:
            self._socket.send(data)

    def push(self, message: Message) -> None:
        """Put a message into the loop's inbox."""
        self._inbox.put(message)

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
        """One frame for all of them; nothing is sent for nothing."""
        frame = out_frame(items)
        if frame.chunks or frame.failed or frame.replies:
            self.post(frame)

    def close(self, error: EngineError) -> None:
        """The last frame."""
        self.post(ClosedFrame(error_record(error)))

    def end(self, linger_ms: int = 2_000) -> None:
        """Wait until what was posted has left, and close."""
        with self._lock:
            self._socket.close(linger=linger_ms)
            self._context.term()


class Gate:
    """Lets messages in; a request with a constraint waits here until it is compiled, so that neither loop nor other requests do."""

    def __init__(self, channel: SocketChannel, guides: Guides) -> None:
        self._channel = channel
        self._guides = guides
        self._pool = ThreadPoolExecutor(_NUM_COMPILERS, "ramet-compile")
        self._lock = threading.Lock()
        self._compiling: list[tuple[Submit, set[str]]] = []  # what waits here, and the aborts that came for it meanwhile

    def take(self, message: Message) -> None:
        """Called by the reader's thread."""
        if isinstance(message, Submit) and any(request.params.constraint is not None for request in message.requests):
            aborted: set[str] = set()
            with self._lock:
                self._compiling.append((message, aborted))
            self._pool.submit(self._compile, message, aborted)
            return
        with self._lock:
            if isinstance(message, Abort):
                for waiting, aborted in self._compiling:
                    if any(message.request_id in (request.request_id, request.sample_of) for request in waiting.requests):
                        aborted.add(message.request_id)
            self._channel.push(message)

    def _compile(self, message: Submit, aborted: set[str]) -> None:
        try:
            self._guides.compile(message.requests)
        except Exception as error:  # whatever it is, it belongs to these requests and to no other
            if not isinstance(error, InvalidRequest):
                logger.exception("compiling a constraint failed")
            with self._lock:
                self._compiling.remove((message, aborted))
            self._channel.deliver([Failed(request.request_id, error) for request in message.requests])
            return
        with self._lock:
            self._compiling.remove((message, aborted))
            self._channel.push(message)
            for request_id in aborted:
                self._channel.push(Abort(request_id))


def main() -> int:
    """Read the orders, load the model, run the loop to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the serving process decides when this one ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s engine: %(message)s")
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    threading.Thread(target=_end_with_parent, name="ramet-parent", daemon=True).start()
    channel = SocketChannel(orders.deliveries_address)
    try:
        from ramet.engine.launch import load

        config = Config.from_options(orders.options)
        model = load(config)
        parts = assemble(config, model)
    except Exception as error:
        channel.post(ClosedFrame(error_record(error)))
        channel.end()
        return FAILED
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    source = context.socket(zmq.PULL)
    source.setsockopt(zmq.RCVHWM, 0)
    source.connect(orders.requests_address)
    gate = Gate(channel, parts.guides)
    threading.Thread(target=_read, args=(source, gate), name="ramet-reader", daemon=True).start()
    channel.post(ReadyFrame(parts.limits, model.name, model.eos_ids, dict(model.generation_config)))
    loop = EngineLoop(parts.core, channel)
    loop.run()  # on this thread; it never raises
    channel.end()
    return ENDED if isinstance(loop.ended_by, EngineClosed) else FAILED


def _read(source: zmq.Socket[bytes], gate: Gate) -> None:
    while True:
        message = decode_to_engine(source.recv())
        gate.take(message)
        if isinstance(message, Stop):
            return


def _end_with_parent() -> None:
    """The standard input ends with the process that holds its other end, however that one ends."""
    sys.stdin.buffer.read()
    os._exit(FAILED)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of compilers and readers are left where they are
