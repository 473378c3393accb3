"""How much memory to keep back for tokens that running requests have yet to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ramet.schedule.request import Request

FIRST_RATIO = 0.5
LEAST_RATIO = 0.1
DECAY_PER_STEP = 0.002
RISE_PER_RETRACTION = 0.2


class Headroom:
    """Estimates the share of their token limits that requests really use: it falls while all goes well and rises with a retraction."""

    def __init__(self) -> None:
        self.ratio = FIRST_RATIO

    def tokens(self, running: Iterable[Request], newcomer: Request) -> int:
        """Slots to leave free when `newcomer` is admitted beside `running`; none when it would run alone."""
        future = [request.num_remaining for request in running]
        if not future:
            return 0
        return math.ceil(self.ratio * (sum(future) + newcomer.num_remaining))

    def on_step(self) -> None:
        """One step went by."""
        self.ratio = max(LEAST_RATIO, self.ratio - DECAY_PER_STEP)

    def on_retraction(self) -> None:
        """The estimate was too low."""
        self.ratio = min(1.0, self.ratio + RISE_PER_RETRACTION)
