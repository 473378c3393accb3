"""Forest attention on a CPU with torch's own flash kernel, which groups heads and gives the log-sum-exp.

    shared item         one call: all its queries against keys read once
    long row            one causal call for its own tokens, one for its private context
    short rows          padded into a few calls, by number of tokens and by length: 32 decoding rows are one call, not 32

Partial results of a query are merged by log-sum-exp. Where slots are consecutive the pool is read in place, without a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ramet.attention import AttentionShape
from ramet.attention.forest import Forest, Keys, PrivateItem, SharedItem, plan_forest
from ramet.batch import RowLike, Slots

# A call and a merge cost about as much as reading so many more numbers of keys and values in a padded call: measured at 3 kv heads of 64,
# where 4 rows over 700 shared tokens, or 32 over 70, break even.
MIN_SAVED_NUMBERS: Final = 2048 * 384
SHORT_ROW: Final = 16  # tokens of a row up to which it is padded together with others
# Large and finite: a query that sees no key of a segment gets a log-sum-exp near it and the weight 0, where -inf would make NaN.
_UNSEEN: Final = -1e30

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """Keys and values of one call: a range of the pool, or a gather of [batch * len] slots."""

    place: slice | Tensor
    batch: int
    mask: Tensor | None  # [batch, 1, queries, len] float32, added to the scores

    def read(self, kv: Tensor, num_kv_heads: int) -> tuple[Tensor, Tensor]:
        """Keys and values, each [batch, num_kv_heads, len, head_dim], views where the slots allow."""
        part = kv[self.place] if isinstance(self.place, slice) else kv.index_select(0, self.place)
        both = part.view(self.batch, -1, *kv.shape[1:]).transpose(1, 2)
        return both[:, :num_kv_heads], both[:, num_kv_heads:]


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    query: slice
    keys: _Segment


@dataclass(frozen=True, slots=True, eq=False)
class _Long:
    query: slice
    own: _Segment
    context: _Segment | None


@dataclass(frozen=True, slots=True, eq=False)
class _Short:
    query: Tensor | None  # [batch * num_new] tokens, the last of a row repeated where it is shorter; None: all tokens in order
    num_new: int
    keys: _Segment  # private context and own tokens of each row


@dataclass(frozen=True, slots=True, eq=False)
class CpuWork:
    """The calls of one step."""

    shape: AttentionShape
    short: tuple[_Short, ...]
    long: tuple[_Long, ...]
    shared: tuple[_Shared, ...]

    def attend(self, query: Tensor, kv: Tensor) -> Tensor:
        """See `AttentionWork`."""
        if len(self.short) == 1 and self.short[0].query is None:
            out, lse = self._short(query, kv, self.short[0])
            if not self.shared:
                return out
            lse = lse.reshape(-1, self.shape.num_heads)
        else:
            out = torch.empty_like(query)
            lse = torch.empty(query.shape[:2], dtype=torch.float32)
            for short in self.short:
                part, part_lse = self._short(query, kv, short)
                assert short.query is not None, "a call for all tokens stands alone"
                out.index_copy_(0, short.query, part)
                lse.index_copy_(0, short.query, part_lse.reshape(-1, self.shape.num_heads))
            for long in self.long:
                part, part_lse = self._whole(query[long.query], kv, long.own, is_causal=long.own.mask is None)
                if long.context is not None:
                    part, part_lse = _merge(part, part_lse, *self._whole(query[long.query], kv, long.context))
                out[long.query], lse[long.query] = part, part_lse
        for item in self.shared:
            part, part_lse = self._whole(query[item.query], kv, item.keys)
            if len(part) == len(out):
                out, lse = _merge(out, lse, part, part_lse)
            else:
                out[item.query], lse[item.query] = _merge(out[item.query], lse[item.query], part, part_lse)
        return out

    def _whole(self, query: Tensor, kv: Tensor, keys: _Segment, is_causal: bool = False) -> tuple[Tensor, Tensor]:
        """All queries against one segment: [n, heads, dim] to the same shape and its log-sum-exp [n, heads]."""
        key, value = keys.read(kv, self.shape.num_kv_heads)
        out, lse = _flash(query.transpose(0, 1).unsqueeze(0), key, value, 0.0, is_causal, attn_mask=keys.mask, scale=self.shape.scale)
        return out[0].transpose(0, 1), lse[0].transpose(0, 1)

    def _short(self, query: Tensor, kv: Tensor, short: _Short) -> tuple[Tensor, Tensor]:
        """Padded rows: queries of a group of heads are stacked, so that each key is read once for all of them.

        The log-sum-exp comes in a shape that `reshape(-1, num_heads)` puts into the order of the result.
        """
        shape, batch, num_new = self.shape, short.keys.batch, short.num_new
        key, value = short.keys.read(kv, shape.num_kv_heads)
        stacked_shape = (batch, shape.num_kv_heads, num_new * shape.group_size, shape.head_dim)
        picked = query if short.query is None else query.index_select(0, short.query)
        if num_new == 1:
            out, lse = _flash(picked.view(stacked_shape), key, value, 0.0, False, attn_mask=short.keys.mask, scale=shape.scale)
            return out.reshape(picked.shape), lse
        apart = (batch, num_new, shape.num_kv_heads, shape.group_size, shape.head_dim)
        stacked = picked.view(apart).transpose(1, 2).reshape(stacked_shape)
        out, lse = _flash(stacked, key, value, 0.0, False, attn_mask=short.keys.mask, scale=shape.scale)
        out = out.view(batch, shape.num_kv_heads, num_new, shape.group_size, shape.head_dim).transpose(1, 2)
        lse = lse.reshape(batch, shape.num_kv_heads, num_new, shape.group_size).transpose(1, 2)
        return out.reshape(picked.shape), lse


def plan_cpu(rows: Sequence[RowLike], shape: AttentionShape, window: int | None, *, min_saved_tokens: int | None = None) -> CpuWork:
    """See `AttentionBackend`. `min_saved_tokens` is the least saving for which a span is read as a shared one; measured when not given."""
    assert shape.device.type == "cpu", "this backend reads the pool on a CPU"
    if min_saved_tokens is None:
        min_saved_tokens = MIN_SAVED_NUMBERS // (2 * shape.num_kv_heads * shape.head_dim)
    forest = plan_forest(rows, min_saved_tokens, window)
    short_items = [item for item in forest.private if item.num_new <= SHORT_ROW]
    buckets = _buckets(short_items)
    is_alone = len(buckets) == 1 and len(short_items) == len(forest.private) and all(item.num_new == 1 for item in short_items)
    if is_alone:
        buckets = [short_items]  # in row order: queries are read and results stand where they are
    return CpuWork(
        shape,
        tuple(_plan_short(bucket, shape, window, in_order=is_alone) for bucket in buckets),
        tuple(_plan_long(item, window) for item in forest.private if item.num_new > SHORT_ROW),
        tuple(_plan_shared(item, forest, window) for item in forest.shared),
    )


def _merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the union of two disjoint sets of keys: exp(lse) are the two masses."""
    weight = torch.sigmoid(other_lse - lse).unsqueeze(-1).to(out.dtype)
    return torch.lerp(out, other, weight), torch.logaddexp(lse, other_lse)


def _place(slots: Slots) -> slice | Tensor:
    first, num = int(slots[0]), len(slots)
    if int(slots[-1]) - first == num - 1 and (num < 3 or bool((np.diff(slots) == 1).all())):
        return slice(first, first + num)
    return torch.from_numpy(np.ascontiguousarray(slots))


def _window_mask(query_positions: Slots, keys: Keys, window: int | None) -> Tensor | None:
    """[1, 1, queries, len], or None when every query sees every key."""
    if window is None or int(query_positions.max()) - int(keys.positions[0]) < window:
        return None
    is_seen = query_positions[:, None] - keys.positions < window
    return torch.from_numpy(np.where(is_seen, np.float32(0), np.float32(_UNSEEN)))[None, None]


def _plan_shared(item: SharedItem, forest: Forest, window: int | None) -> _Shared:
    query = slice(item.query_start, item.query_end)
    return _Shared(query, _Segment(_place(item.keys.slots), 1, _window_mask(forest.positions[query], item.keys, window)))


def _plan_long(item: PrivateItem, window: int | None) -> _Long:
    positions = np.arange(item.start, item.start + item.num_new)
    own = Keys(item.own_slots, positions)
    mask = _window_mask(positions, own, window)
    if mask is not None:  # the kernel takes a mask or the causal flag, not both
        mask += torch.full((item.num_new, item.num_new), _UNSEEN).triu(1)
    context = None
    if len(item.context):
        context = _Segment(_place(item.context.slots), 1, _window_mask(positions, item.context, window))
    return _Long(slice(item.query_start, item.query_end), _Segment(_place(item.own_slots), 1, mask), context)


def _buckets(items: list[PrivateItem]) -> list[list[PrivateItem]]:
    """Rows that are padded together: alike in number of tokens (to the next power of two) and no more than half padding."""
    buckets: list[list[PrivateItem]] = []
    kind = (0, 0)
    for item in sorted(items, key=lambda item: (_pad(item.num_new), len(item.context)), reverse=True):
        num_new, length = _pad(item.num_new), len(item.context) + item.num_new
        if not buckets or num_new != kind[0] or length < kind[1] // 2 - 32:
            buckets.append([])
            kind = (num_new, length)
        buckets[-1].append(item)
    return buckets


def _pad(num_new: int) -> int:
    return 1 << (num_new - 1).bit_length()


def _plan_short(bucket: list[PrivateItem], shape: AttentionShape, window: int | None, in_order: bool) -> _Short:
    batch, num_new = len(bucket), max(item.num_new for item in bucket)
    length = max(len(item.context) + item.num_new for item in bucket)
    query = np.empty((batch, num_new), np.int64)
    slots = np.empty((batch, length), np.int64)
    is_seen = np.zeros((batch, num_new, length), np.bool_)
    for index, item in enumerate(bucket):
        own = np.minimum(np.arange(num_new), item.num_new - 1)
        query[index] = item.query_start + own
        num_keys = len(item.context) + item.num_new
        slots[index, : len(item.context)] = item.context.slots
        slots[index, len(item.context) : num_keys] = item.own_slots
        slots[index, num_keys:] = item.own_slots[-1]  # padding reads a slot that holds numbers: 0 * NaN would spoil the sum
        positions = np.concatenate([item.context.positions, np.arange(item.start, item.start + item.num_new)])
        behind = (item.start + own)[:, None] - positions
        is_seen[index, :, :num_keys] = behind >= 0 if window is None else (behind >= 0) & (behind < window)
    mask = None
    if not is_seen.all():
        rows = np.where(is_seen, np.float32(0), np.float32(_UNSEEN)).repeat(shape.group_size, axis=1)
        mask = torch.from_numpy(rows).unsqueeze(1)
    place = _place(slots[0]) if batch == 1 else torch.from_numpy(slots.reshape(-1))
    return _Short(None if in_order else torch.from_numpy(query.reshape(-1)), num_new, _Segment(place, batch, mask))
