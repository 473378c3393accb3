"""One step as tensors. What a plan looks like is said here structurally, so that nothing below the scheduler imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

Slots = npt.NDArray[np.int64]


class SpanLike(Protocol):
    """Cached tokens at consecutive positions; equal keys mean the very same tokens (`ramet.schedule.plan.Span`)."""

    @property
    def key(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def slots(self) -> Slots: ...


class RowLike(Protocol):
    """The new tokens of one request in one step (`ramet.schedule.plan.Row`)."""

    @property
    def start(self) -> int: ...
    @property
    def token_ids(self) -> Slots: ...
    @property
    def slots(self) -> Slots: ...
    @property
    def context(self) -> Sequence[SpanLike]: ...
    @property
    def num_logits(self) -> int: ...


class AttentionWork(Protocol):
    """The attention of one step, planned once and carried out in every layer with the same window."""

    def attend(self, query: Tensor, kv: Tensor) -> Tensor:
        """query [num_tokens, num_heads, head_dim] and the layer's pool [num_slots, 2 * num_kv_heads, head_dim] to the shape of the query.

        The keys and values of the step's own tokens are in the pool already. Changes neither argument.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ForwardBatch:
    """What a model reads: the new tokens of all rows one after another."""

    token_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    slots: Tensor  # [num_tokens] int64, where the new keys and values go
    logit_indices: Tensor | None  # [num_logits] int64, the tokens whose logits are wanted; None: all of them
    attention: Mapping[int | None, AttentionWork]  # by sliding window
