"""From rows to work items: what several rows share is one item, what is left of each row is private.

          ____ span A ____                          item A   queries of rows 0..3
         /                \\
      span B            row 3                       item B   queries of rows 0..2, one level deeper
     /   |   \\
  row 0 row 1 row 2                                 private  what remains of each row's path, and its own tokens

Every query has exactly one private part, which includes its own token, and at most one item at each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramet.batch import RowLike, Slots, SpanLike


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Keys and values by slot, with the positions of their tokens, ascending."""

    slots: Slots
    positions: Slots

    def __len__(self) -> int:
        return len(self.slots)

    def seen_from(self, first_position: int) -> Keys:
        """Without the keys before a position."""
        cut = int(np.searchsorted(self.positions, first_position))
        return self if cut == 0 else Keys(self.slots[cut:], self.positions[cut:])


@dataclass(frozen=True, slots=True, eq=False)
class SharedItem:
    """Keys that the tokens of several neighbouring rows all see, window apart."""

    query_start: int
    query_end: int
    keys: Keys
    level: int  # number of shared items above it on the same path


@dataclass(frozen=True, slots=True, eq=False)
class PrivateItem:
    """What one row alone reads: the rest of its context, and its own tokens causally."""

    query_start: int
    query_end: int
    start: int  # position of the first own token
    context: Keys
    own_slots: Slots

    @property
    def num_new(self) -> int:
        return self.query_end - self.query_start


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The work of one step; shared items by ascending level, private items in row order."""

    shared: tuple[SharedItem, ...]
    private: tuple[PrivateItem, ...]
    positions: Slots  # [num_tokens] of the queries


def plan_forest(rows: Sequence[RowLike], min_saved_tokens: int, window: int | None) -> Forest:
    """Find what neighbouring rows share.

    Spans are shared along common paths: rows share a span when their paths are equal up to and including it. An item is made when it saves
    reading at least `min_saved_tokens` tokens; below that the tokens stay private to each row. Keys that no query of an item sees through
    the window are left out. Does not change the rows.
    """
    bounds = np.concatenate([[0], np.cumsum([len(row.token_ids) for row in rows])]).tolist()
    shared: list[SharedItem] = []
    private: list[list[SpanLike]] = [[] for _ in rows]
    todo: list[tuple[int, int, int, int]] = [(0, len(rows), 0, 0)]  # rows [low, high) whose paths are equal up to `depth`; level
    while todo:
        low, high, depth, level = todo.pop()
        for first, last in _runs(rows, low, high, depth):
            end = _common_depth(rows, first, last, depth)
            spans = rows[first].context[depth:end]
            saved = sum(len(span.slots) for span in spans) * (last - first - 1)
            if last - first == 1 or saved < min_saved_tokens:
                for index in range(first, last):
                    private[index].extend(spans)
                below = level
            else:
                keys = _keys(spans)
                if window is not None:
                    keys = keys.seen_from(min(row.start for row in rows[first:last]) - window + 1)
                if len(keys):
                    shared.append(SharedItem(bounds[first], bounds[last], keys, level))
                below = level + 1
            if last - first > 1:
                todo.append((first, last, end, below))
    shared.sort(key=lambda item: (item.level, item.query_start))
    items = []
    for index, row in enumerate(rows):
        keys = _keys(private[index])
        if window is not None:
            keys = keys.seen_from(row.start - window + 1)
        items.append(PrivateItem(bounds[index], bounds[index + 1], row.start, keys, row.slots))
    positions = np.concatenate([np.arange(row.start, row.start + len(row.token_ids)) for row in rows])
    return Forest(tuple(shared), tuple(items), positions)


def _runs(rows: Sequence[RowLike], low: int, high: int, depth: int) -> list[tuple[int, int]]:
    """Maximal runs of rows within [low, high) with the same span at `depth`; rows whose path has ended are in none."""
    runs: list[tuple[int, int]] = []
    last_key: int | None = None
    for index in range(low, high):
        context = rows[index].context
        key = context[depth].key if depth < len(context) else None
        if key is not None:
            if key == last_key:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
        last_key = key
    return runs


def _common_depth(rows: Sequence[RowLike], first: int, last: int, depth: int) -> int:
    """The depth up to which all rows of a run, equal up to and including `depth`, have equal paths."""
    path = rows[first].context
    end = min(len(row.context) for row in rows[first:last])
    for row in rows[first + 1 : last]:
        same = depth + 1
        while same < end and row.context[same].key == path[same].key:
            same += 1
        end = min(end, same)
    return end


def _keys(spans: Sequence[SpanLike]) -> Keys:
    if not spans:
        empty = np.empty(0, np.int64)
        return Keys(empty, empty)
    if len(spans) == 1:
        span = spans[0]
        return Keys(span.slots, np.arange(span.start, span.start + len(span.slots)))
    slots = np.concatenate([span.slots for span in spans])
    return Keys(slots, np.concatenate([np.arange(span.start, span.start + len(span.slots)) for span in spans]))
