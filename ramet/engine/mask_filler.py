"""Masks are made while the model runs, in threads of their own, so that no mask is waited for by those who do not need it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.mask import MaskRow
from ramet.errors import InvalidConstraint

logger = logging.getLogger(__name__)

_NUM_AHEAD_STATES = 512  # masks worked out before anyone asks for them, a constraint


class MaskFiller:
    """Two small pools: one for masks that a request needs next, one for working ahead. Threads start with the first constraint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._urgent: ThreadPoolExecutor | None = None
        self._ahead: ThreadPoolExecutor | None = None
        self._is_closed = False

    def ask(self, matcher: Matcher) -> Future[MaskRow | None]:
        """The mask of a matcher, which no one may touch until the future is done."""
        ready: Future[MaskRow | None] = Future()
        if matcher.is_mask_ready:
            try:
                ready.set_result(matcher.mask())
            except InvalidConstraint as error:
                ready.set_exception(error)
            return ready
        with self._lock:
            if self._urgent is None:
                self._urgent = ThreadPoolExecutor(2, thread_name_prefix="ramet-mask")
            return self._urgent.submit(matcher.mask)

    def work_ahead(self, compiled: Compiled) -> None:
        """Prepare masks of a new constraint when there is time."""
        with self._lock:
            if self._is_closed:
                return
            if self._ahead is None:
                self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ramet-mask-ahead")
            self._ahead.submit(_prepare, compiled)

    def wait(self, futures: Iterable[Future[MaskRow | None]], timeout_s: float) -> None:
        """Return when one of them is done, or after the time."""
        wait(list(futures), timeout=timeout_s, return_when=FIRST_COMPLETED)

    def close(self) -> None:
        """End the threads as soon as what they do now is done; nothing is asked for afterwards."""
        with self._lock:
            self._is_closed = True
            for pool in (self._urgent, self._ahead):
                if pool is not None:
                    pool.shutdown(wait=False, cancel_futures=True)


def _prepare(compiled: Compiled) -> None:
    try:
        compiled.prepare(_NUM_AHEAD_STATES)
    except InvalidConstraint as error:
        logger.debug("working ahead on a constraint stopped; its requests will be told: %s", error)
