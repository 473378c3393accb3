"""The meaning of forest attention, in plain torch: one row after another, float32 softmax, nothing shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.attention import AttentionShape
from ramet.batch import RowLike


@dataclass(frozen=True, slots=True, eq=False)
class _RowWork:
    query: slice
    slots: Tensor  # [len] context, then the row's own
    mask: Tensor  # [num_new, len] True where the token attends


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceWork:
    """One gather and one softmax a row."""

    shape: AttentionShape
    rows: tuple[_RowWork, ...]

    def attend(self, query: Tensor, kv: Tensor) -> Tensor:
        """See `AttentionWork`; computes in float32 whatever the dtype."""
        out = torch.empty_like(query)
        num_kv_heads, group_size = self.shape.num_kv_heads, self.shape.group_size
        for row in self.rows:
            both = kv.index_select(0, row.slots).float()
            key, value = both[:, :num_kv_heads], both[:, num_kv_heads:]
            grouped = query[row.query].float().view(-1, num_kv_heads, group_size, self.shape.head_dim)
            scores = torch.einsum("qhgd,khd->hgqk", grouped, key) * self.shape.scale
            weights = scores.masked_fill(~row.mask, -torch.inf).softmax(-1)
            out[row.query] = torch.einsum("hgqk,khd->qhgd", weights, value).flatten(1, 2).to(query.dtype)
        return out


def plan_reference(rows: Sequence[RowLike], shape: AttentionShape, window: int | None) -> ReferenceWork:
    """See `AttentionBackend`."""
    work: list[_RowWork] = []
    num_tokens = 0
    for row in rows:
        num_new = len(row.token_ids)
        slots = np.concatenate([*(span.slots for span in row.context), row.slots])
        key_position = torch.arange(row.start + num_new)
        query_position = key_position[row.start :, None]
        mask = key_position <= query_position
        if window is not None:
            mask &= query_position - key_position < window
        query = slice(num_tokens, num_tokens + num_new)
        work.append(_RowWork(query, torch.from_numpy(slots).to(shape.device), mask.to(shape.device)))
        num_tokens += num_new
    return ReferenceWork(shape, tuple(work))
