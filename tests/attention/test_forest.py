"""What the planner shares, and that nothing is lost or read twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.attention.forest import plan_forest
from ramet.schedule.plan import Row, Span

LENS = {1: 10, 2: 4, 3: 4, 4: 2, 5: 1, 6: 7}  # span key to its length


def row(name: str, keys: tuple[int, ...], num_new: int = 1) -> Row:
    context: list[Span] = []
    start = 0
    for key in keys:
        context.append(Span(key, start, np.arange(100 * key, 100 * key + LENS[key])))
        start += LENS[key]
    own = 10_000 + 100 * sum(map(ord, name))
    return Row(name, start, np.zeros(num_new, np.int64), np.arange(own, own + num_new), tuple(context), 1)


def shared(rows: list[Row], min_saved: int = 0, window: int | None = None) -> list[tuple[int, int, list[int], int]]:
    items = plan_forest(rows, min_saved, window).shared
    return [(item.query_start, item.query_end, sorted({int(slot) // 100 for slot in item.keys.slots}), item.level) for item in items]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([(1,)], []),
        ([(1,), (1,)], [(0, 2, [1], 0)]),
        ([(1,), (2,)], []),
        ([(1, 2), (1, 2), (1, 3)], [(0, 3, [1], 0), (0, 2, [2], 1)]),
        ([(1, 2), (1, 2)], [(0, 2, [1, 2], 0)]),  # a chain is one item
        ([(1,), (1, 2), (1, 2, 3), (1, 2, 3)], [(0, 4, [1], 0), (1, 4, [2], 1), (2, 4, [3], 2)]),
        ([(1,), (1,), (2,), (2,)], [(0, 2, [1], 0), (2, 4, [2], 0)]),
        ([(), (1,), (1,), ()], [(1, 3, [1], 0)]),
    ],
)
def test_shared_items(paths: list[tuple[int, ...]], expected: list[tuple[int, int, list[int], int]]) -> None:
    assert shared([row(str(index), path) for index, path in enumerate(paths)]) == expected


def test_query_ranges_count_tokens() -> None:
    assert shared([row("a", (1,), 3), row("b", (1,), 5), row("c", ())]) == [(0, 8, [1], 0)]


def test_small_savings_stay_private() -> None:
    rows = [row("a", (2, 1)), row("b", (2, 1)), row("c", (2, 3))]
    assert shared(rows, min_saved=9) == [(0, 2, [1], 0)]
    private = plan_forest(rows, 9, None).private
    assert [sorted({int(slot) // 100 for slot in item.context.slots}) for item in private] == [[2], [2], [2, 3]]


def test_window_leaves_out_what_no_one_sees() -> None:
    rows = [row("a", (1, 6)), row("b", (1, 6))]  # both rows at position 17, with a window from 10 on
    assert shared(rows, window=8) == [(0, 2, [6], 0)]
    assert shared(rows, window=1) == []


def test_private_items_read_from_a_window() -> None:
    item = plan_forest([row("a", (1, 6), 3)], 0, 5).private[0]
    assert item.context.positions.tolist() == [13, 14, 15, 16]
    assert item.own_slots.tolist() == row("a", (1, 6), 3).slots.tolist()


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    """Random paths, depth first: sorted tuples of keys, each key under one parent."""
    parents = {1: None, 2: 1, 3: 1, 4: 2, 5: 2, 6: None}
    paths = []
    for _ in range(draw(st.integers(1, 7))):
        key: int | None = draw(st.sampled_from([None, 1, 2, 3, 4, 5, 6]))
        path: tuple[int, ...] = ()
        while key is not None:
            path = (key, *path)
            key = parents[key]
        paths.append(path)
    return [row(f"r{index}", path, draw(st.integers(1, 4))) for index, path in enumerate(sorted(paths))]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(trees(), st.integers(0, 20), st.none() | st.integers(1, 25))
def test_every_query_reads_what_it_sees_exactly_once(rows: list[Row], min_saved: int, window: int | None) -> None:
    forest = plan_forest(rows, min_saved, window)
    assert [item.num_new for item in forest.private] == [len(r.token_ids) for r in rows]
    for r, item in zip(rows, forest.private, strict=True):
        mine = [part for part in forest.shared if part.query_start <= item.query_start and item.query_end <= part.query_end]
        assert len({part.level for part in mine}) == len(mine)
        read = [*item.context.slots.tolist(), *(slot for part in mine for slot in part.keys.slots.tolist())]
        assert len(read) == len(set(read))
        whole = [slot for span in r.context for slot in span.slots.tolist()]
        seen = whole if window is None else whole[max(0, r.start - window + 1) :]
        assert set(seen) <= set(read) <= set(whole)
