"""An ordered queue of nodes and the one thread at a time that runs them.

Nodes that wait for no one run in the thread that appends them when the queue is empty; for others a thread is started that lives as long
as the queue has nodes. So no thread is idle, and none is left when a program is over.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ramet.lang.nodes import Node
from ramet.lang.variables import Cell


class Runner(Protocol):
    """Whose nodes these are."""

    @property
    def is_failed(self) -> bool:
        """Whether what is queued is to be dropped."""

    def is_instant(self, node: Node, cell: Cell | None) -> bool:
        """Whether the node runs without waiting for anyone. The lock is held."""

    def run(self, node: Node, cell: Cell | None) -> None:
        """Run one node."""

    def fail(self, error: BaseException, where: str) -> None:
        """A node could not be run."""


class NodeQueue:
    """Runs nodes in order; `changed` is the lock of everything here, and `notify` is called with it whenever the queue runs dry."""

    def __init__(
        self, runner: Runner, changed: threading.Condition, notify: Callable[[], None], *, thread_name: str, use_thread: bool
    ) -> None:
        self._runner = runner
        self._changed = changed
        self._notify = notify
        self._thread_name = thread_name
        self._use_thread = use_thread
        self._items: deque[tuple[Node, Cell | None]] = deque()
        self.is_busy = False  # someone runs nodes; true whenever the queue is not empty
        self.thread_id: int | None = None  # of the thread that runs a node now

    def put(self, node: Node, cell: Cell | None) -> bool:
        """Append; True when the caller must call `advance` once it has let go of the lock, which it holds now."""
        self._items.append((node, cell))
        is_mine = not self.is_busy
        self.is_busy = True
        return is_mine

    def advance(self) -> bool:
        """Run what is at hand in this thread, or start a thread for it; True when nothing is left to a thread."""
        if not self._drain(is_caller=True):
            return True
        try:
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(self._drain,), name=self._thread_name, daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            self._runner.fail(error, "the start of its thread")
            self._drain()
            return True
        return False

    def drop(self) -> None:
        """Forget what has not begun. The lock is held."""
        self._items.clear()

    def _drain(self, is_caller: bool = False) -> bool:
        """Run nodes until the queue is empty; True when the next one needs a thread of its own."""
        while True:
            with self._changed:
                if self._runner.is_failed:
                    self._items.clear()
                if not self._items:
                    self.is_busy = False
                    self._notify()
                    return False
                node, cell = self._items[0]
                if is_caller and self._use_thread and not self._runner.is_instant(node, cell):
                    return True
                self._items.popleft()
                self.thread_id = threading.get_ident()
            try:
                self._runner.run(node, cell)
            except BaseException as error:
                self._runner.fail(error, repr(node))
                if is_caller and not isinstance(error, Exception):  # such as KeyboardInterrupt: the caller's own
                    self._drain()
                    raise
            finally:
                self.thread_id = None
