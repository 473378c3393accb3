"""What a constraint may cost, and how a breach is told to the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ramet.errors import InvalidConstraint


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for one constraint; beyond any of them InvalidConstraint is raised.

    `max_nfa_states` counts the states with every repetition written out; they are never all built. `max_dfa_states` and `max_seconds` hold
    for the lazy part too: the seconds count for the compilation and anew for each mask. `max_mask_rows` bounds the masks that are kept.
    """

    max_text_bytes: int = 1 << 18
    max_nesting: int = 100
    max_nfa_states: int = 1_000_000
    max_dfa_states: int = 100_000
    max_seconds: float = 2.0
    max_mask_rows: int = 1024


class Source:
    """The constraint as its author wrote it, its limits, and the time left: what every layer needs to refuse it properly."""

    __slots__ = ("_clock", "_deadline", "kind", "limits", "text")

    def __init__(self, kind: str, text: str, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.kind = kind
        self.text = text
        self.limits = limits or Limits()
        self._clock = clock
        self.restart_clock()
        try:
            size_bytes = len(text.encode())
        except UnicodeEncodeError as error:
            raise self.error("half of a surrogate pair is no character", error.start) from error
        if size_bytes > self.limits.max_text_bytes:
            raise self.error(f"{size_bytes} bytes are more than the limit of {self.limits.max_text_bytes}")

    def error(self, why: str, offset: int | None = None) -> InvalidConstraint:
        """The error to raise; `offset` counts characters of the text."""
        return InvalidConstraint(self.kind, self.text, why, offset)

    def restart_clock(self) -> None:
        """Give the next piece of work its own `max_seconds`."""
        self._deadline = self._clock() + self.limits.max_seconds

    def check_time(self) -> None:
        """Raise InvalidConstraint when the time is over."""
        if self._clock() > self._deadline:
            raise self.error(f"it takes more than {self.limits.max_seconds} seconds to build: make repetitions smaller or less ambiguous")
