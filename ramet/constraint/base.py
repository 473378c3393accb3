"""What the engine sees of a constraint: a compiled object that requests share, and a matcher for each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ramet.constraint.mask import MaskRow


class Matcher(Protocol):
    """Where one request stands in its constraint. Belongs to one thread at a time."""

    @property
    def is_final(self) -> bool:
        """Whether the text so far matches, so that it may end here."""

    @property
    def is_finished(self) -> bool:
        """Whether an id that ends the text was accepted; then nothing more is."""

    @property
    def state_key(self) -> int:
        """Equal for matchers of the same compiled object whose masks and futures are equal."""

    @property
    def num_accepted(self) -> int:
        """How many tokens were accepted and not rolled back."""

    def mask(self) -> MaskRow | None:
        """The tokens that may come next, bool [logits width], shared: do not write to it. None when the text is finished.

        Raises InvalidConstraint when the lazy work passes a limit or no token leads on.
        """

    @property
    def is_mask_ready(self) -> bool:
        """Whether `mask` would only look up what is there."""

    def allows(self, token_id: int) -> bool:
        """Whether this token may come next, without the work of a mask."""

    def accept(self, token_id: int) -> None:
        """Go on by one token, which must be allowed; an id that ends a text finishes the matcher."""

    def forced_bytes(self, max_len: int | None = None) -> bytes:
        """The bytes that must come next whatever is chosen, up to the first choice or `max_len`; does not advance."""

    def bytes_behind(self, data: bytes) -> list[tuple[int, int]]:
        """Inclusive ranges of the bytes that may follow `data`, which must be allowed here; more than those is right, less is not."""

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""

    def fork(self) -> Matcher:
        """An independent matcher at the same place."""


class Compiled(Protocol):
    """A constraint ready for use: as good as immutable, its lazy parts are guarded, so any thread may use it."""

    @property
    def is_finite(self) -> bool:
        """Whether only finitely many texts match; False where that is not known."""

    @property
    def num_bytes(self) -> int:
        """About how much memory it holds by now, without masks."""

    def prepare(self, max_states: int = ..., goes_on: Callable[[], bool] = ...) -> int:
        """Work ahead, in a background thread: the masks nearest to the start, as long as `goes_on`; gives how many.

        Raises InvalidConstraint over a limit.
        """

    def matcher(self) -> Matcher:
        """A matcher at the start."""
