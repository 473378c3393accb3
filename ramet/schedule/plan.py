"""A Plan: what one step computes, against which cached tokens. No torch; the executor turns it into tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Cached tokens at consecutive positions.

    Two rows whose contexts hold a span of equal `key` hold the very same tokens there, so the span is read once for both.
    """

    key: int
    start: int  # position of the first token
    slots: Slots  # [len] where the keys and values lie in the pool


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The new tokens of one request in one step.

    The tokens stand at positions `start .. start + len(token_ids)`; they attend to all of `context` and causally to themselves.
    `context` covers the positions 0 .. start in order. A context slot may be written in this same step by another row:
    keys and values of a layer are stored before that layer's attention reads them.
    Logits are wanted for the last `num_logits` of the tokens.
    """

    request_id: str
    start: int
    token_ids: Slots  # [num_new]
    slots: Slots  # [num_new] where the new keys and values go
    context: tuple[Span, ...]
    num_logits: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One step. Rows are in the depth-first order of the tree, so rows that share a span stand next to each other."""

    rows: tuple[Row, ...]

    @property
    def num_tokens(self) -> int:
        """New tokens over all rows."""
        return sum(len(row.token_ids) for row in self.rows)

    @property
    def num_logits(self) -> int:
        """Rows of the logits that come back, in row order."""
        return sum(row.num_logits for row in self.rows)
