"""Masks are made while the model runs, in threads of their own, so that no mask is waited for by those who do not need it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final

from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.mask import MaskRow
from ramet.errors import InvalidConstraint

logger = logging.getLogger(__name__)

_NUM_URGENT_THREADS: Final = 2
_NUM_AHEAD_STATES: Final = 512  # masks worked out before anyone asks for them, a constraint
_MAX_AHEAD_S: Final = 1.0  # that one constraint may take, so that the next ones have their turn
_MAX_NUM_AHEAD: Final = 64  # constraints that wait to be worked on; the oldest ones are given up

MaskFuture = Future[MaskRow | None]


class MaskFiller:
    """Threads for masks that a request needs next, and one for working ahead. They start with the first constraint.

    They hold up neither the end of the process nor that of a constraint: what waits to be worked on is not kept for that.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._urgent: deque[tuple[MaskFuture, Matcher]] = deque()
        self._ahead: deque[weakref.ref[Compiled]] = deque(maxlen=_MAX_NUM_AHEAD)
        self._has_urgent_threads = self._has_ahead_thread = False
        self._is_closed = False

    @property
    def num_ahead(self) -> int:
        """How many constraints wait to be worked on."""
        return len(self._ahead)

    def ask(self, matcher: Matcher) -> MaskFuture:
        """The mask of a matcher, which no one may touch until the future is done; after `close` it never is."""
        future: MaskFuture = Future()
        if matcher.is_mask_ready:
            _fill(future, matcher)
            return future
        with self._changed:
            self._urgent.append((future, matcher))
            if not self._has_urgent_threads:
                self._has_urgent_threads = True
                for _ in range(_NUM_URGENT_THREADS):
                    threading.Thread(target=self._work_urgent, name="ramet-mask", daemon=True).start()
            self._changed.notify_all()
        return future

    def work_ahead(self, compiled: Compiled) -> None:
        """Prepare masks of a new constraint when there is time."""
        with self._changed:
            if self._is_closed:
                return
            self._ahead.append(weakref.ref(compiled))
            if not self._has_ahead_thread:
                self._has_ahead_thread = True
                threading.Thread(target=self._work_ahead, name="ramet-mask-ahead", daemon=True).start()
            self._changed.notify_all()

    def wait(self, futures: Iterable[MaskFuture], timeout_s: float) -> None:
        """Return when one of them is done, or after the time."""
        wait(list(futures), timeout=timeout_s, return_when=FIRST_COMPLETED)

    def close(self) -> None:
        """End the threads as soon as the mask they make now is done; nothing is asked for afterwards."""
        with self._changed:
            self._is_closed = True
            self._urgent.clear()
            self._ahead.clear()
            self._changed.notify_all()

    def _work_urgent(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._urgent)
                if self._is_closed:
                    return
                future, matcher = self._urgent.popleft()
            _fill(future, matcher)
            del future, matcher  # not kept while waiting

    def _work_ahead(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._ahead)
                if self._is_closed:
                    return
                compiled = self._ahead.popleft()()
            if compiled is not None:
                self._prepare(compiled)
            del compiled

    def _prepare(self, compiled: Compiled) -> None:
        end_s = time.monotonic() + _MAX_AHEAD_S
        try:
            compiled.prepare(_NUM_AHEAD_STATES, lambda: not self._is_closed and time.monotonic() < end_s)
        except InvalidConstraint as error:
            logger.debug("working ahead on a constraint stopped; its requests will be told: %s", error)


def _fill(future: MaskFuture, matcher: Matcher) -> None:
    try:
        future.set_result(matcher.mask())
    except BaseException as error:  # told to whoever asks for the result
        future.set_exception(error)
