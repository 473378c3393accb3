"""`RemoteEngine`: a model in a process of its own. Text and ids meet here; the loop, the cache and the model are over there.

callers -> requests -> PUSH ===> PULL -> reader -> loop      (the engine's process)
callers <- mailboxes <- PULL <=== PUSH <- deliveries
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from typing import Final

import msgspec
import zmq

from ramet.config import Config
from ramet.engine.channel import Mailbox, Mailboxes
from ramet.engine.client import EngineClient
from ramet.engine.process import Orders
from ramet.engine.wire import (
    AbortFrame,
    AskFrame,
    ClosedFrame,
    OutFrame,
    ReadyFrame,
    StopFrame,
    SubmitFrame,
    ToEngine,
    decode_from_engine,
    deliveries,
    encode,
    error_of,
)
from ramet.errors import EngineDied, EngineError, ModelError
from ramet.messages import GenerateRequest
from ramet.tokenizer import load_tokenizer
from ramet.weights import resolve_model

logger = logging.getLogger(__name__)

_POLL_MS: Final = 100  # how long a lost process may go unnoticed
_STOP_TIMEOUT_S: Final = 10.0  # from the wish to stop to the end by force
_MAX_SOCKET_PATH_LEN: Final = 90  # of the file of a socket; systems allow about 100


class RemoteEngine(EngineClient):
    """Runs a model in a process of its own; the same calls as `Engine`.

    Returns once the engine takes requests. Raises what the engine's process raised while it started (ModelError, ConfigError),
    and EngineDied when that process ends, or is not ready within `start_timeout_s`.
    """

    def __init__(self, config: Config, *, start_timeout_s: float = 1_800.0) -> None:
        super().__init__()
        self.config = config
        self._line = _Line(config)
        self._stop = weakref.finalize(self, self._line.stop)
        try:
            files = resolve_model(config.model)
            self.tokenizer = load_tokenizer(files)  # while the other process loads the weights
            ready = self._line.wait_ready(start_timeout_s)
        except BaseException:
            self._stop()
            raise
        self.model_name, self.limits, self.eos_ids = ready.model_name, ready.limits, ready.eos_ids
        self.generation_config = ready.generation_config

    @property
    def closed_by(self) -> EngineError | None:
        return self._line.mailboxes.closed_by

    @property
    def process_id(self) -> int:
        """The engine's process."""
        return self._line.process.pid

    def shutdown(self) -> None:
        self._stop()

    def _submit(self, requests: tuple[GenerateRequest, ...], mailboxes: tuple[Mailbox, ...]) -> None:
        self._line.mailboxes.open([request.request_id for request in requests], mailboxes)
        self._line.send(SubmitFrame(requests))

    def _abort(self, request_id: str) -> None:
        self._line.send(AbortFrame(request_id))

    def _ask(self, what: str, mailbox: Mailbox) -> None:
        self._line.send(AskFrame(self._line.mailboxes.open_ticket(mailbox), what))


class _Line:
    """The process and the two sockets; knows nothing of its owner, so that it can outlive it for the time of stopping."""

    def __init__(self, config: Config) -> None:
        self.mailboxes = Mailboxes()
        self._folder = tempfile.mkdtemp(prefix="ramet-")
        if len(self._folder) > _MAX_SOCKET_PATH_LEN:
            shutil.rmtree(self._folder)
            self._folder = tempfile.mkdtemp(prefix="ramet-", dir="/tmp")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._requests = self._bound(zmq.PUSH, "requests")
        self._deliveries = self._bound(zmq.PULL, "deliveries")
        self._lock = threading.Lock()  # a socket may be used by one thread at a time
        self._ready: ReadyFrame | None = None
        self._is_settled = threading.Event()  # ready, or ended before that
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ramet.engine.process"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # an interrupt at the terminal is for the process that serves
        )
        assert self.process.stdin is not None, "a pipe was asked for"
        orders = Orders(config.to_options(), f"ipc://{self._folder}/requests", f"ipc://{self._folder}/deliveries")
        with suppress(BrokenPipeError):  # it has ended already; the reader says so
            self.process.stdin.write(msgspec.json.encode(orders) + b"\n")
            self.process.stdin.flush()
        self._reader = threading.Thread(target=self._read, name="ramet-deliveries", daemon=True)
        self._reader.start()

    def wait_ready(self, timeout_s: float) -> ReadyFrame:
        """Block until the engine takes requests; raises what it failed with."""
        if not self._is_settled.wait(timeout_s):
            raise EngineDied(f"the engine's process was not ready after {timeout_s:g} s")
        if self._ready is None:
            error = self.mailboxes.closed_by
            assert error is not None, "settled without being ready"
            raise error.__cause__ if isinstance(error.__cause__, ModelError | ValueError) else error
        return self._ready

    def send(self, frame: ToEngine) -> None:
        """Send to the engine; one that is gone has closed all mailboxes, or will within a moment."""
        data = encode(frame)
        with self._lock:
            if self._requests.closed:
                return
            with suppress(zmq.Again):  # no one is there to read: the reader notices and ends what is open
                self._requests.send(data, zmq.NOBLOCK)

    def stop(self) -> None:
        """Let the engine end, by force if need be, and give everything back."""
        self.send(StopFrame())
        end_time_s = time.monotonic() + _STOP_TIMEOUT_S
        if self._reader is not threading.current_thread():
            self._reader.join(_STOP_TIMEOUT_S)
        try:
            self.process.wait(max(0.0, end_time_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._reader is not threading.current_thread():
            self._reader.join()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # nothing was left to be read there
                self.process.stdin.close()
        with self._lock:
            self._requests.close(linger=0)
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bound(self, kind: int, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.bind(f"ipc://{self._folder}/{name}")
        return socket

    def _read(self) -> None:
        """The reader's thread: until the engine's last message, or its end without one."""
        error: EngineError | None = None
        has_ended = False
        while error is None:
            if self._deliveries.poll(_POLL_MS):
                frame = decode_from_engine(self._deliveries.recv())
                if isinstance(frame, OutFrame):
                    self.mailboxes.deliver(deliveries(frame))
                elif isinstance(frame, ReadyFrame):
                    self._ready = frame
                    self._is_settled.set()
                else:
                    error = _ending(frame)
            elif has_ended:
                error = EngineDied(f"the engine's process {self.process.pid} ended with code {self.process.returncode}")
            else:
                has_ended = self.process.poll() is not None  # once more, for what it sent before
        self.mailboxes.close(error)
        self._is_settled.set()


def _ending(frame: ClosedFrame) -> EngineError:
    """The error of a last message; what is no engine's error (a model that is not there) becomes the cause of one."""
    error = error_of(frame.error)
    if isinstance(error, EngineError):
        return error
    died = EngineDied(f"the engine did not start: {error}")
    died.__cause__ = error
    return died
