"""Attention of new tokens to a forest of cached segments: one meaning, several ways to compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from ramet.batch import AttentionWork, RowLike
from ramet.registry import Registry


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What is the same for all layers and steps."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float  # of the scores, before the softmax
    dtype: torch.dtype
    device: torch.device

    @property
    def group_size(self) -> int:
        """Query heads that read the same keys and values."""
        return self.num_heads // self.num_kv_heads


class AttentionBackend(Protocol):
    """Plans the attention of one step.

    Meaning (`attention/reference.py`): every token attends to its row's context and, causally, to its row's own tokens; with a `window`,
    only to keys whose position is less than `window` behind its own. Slots that no row names are never read.
    """

    def __call__(self, rows: Sequence[RowLike], shape: AttentionShape, window: int | None) -> AttentionWork: ...


ATTENTION: Final[Registry[AttentionBackend]] = Registry("attention")
ATTENTION.add("reference", "ramet.attention.reference:plan_reference")
ATTENTION.add("cpu", "ramet.attention.cpu:plan_cpu")
