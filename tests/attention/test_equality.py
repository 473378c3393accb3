"""Every backend of the registry against the reference, on random forests, with NaN in every slot that no row names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ramet.attention import ATTENTION, AttentionShape
from ramet.attention.cpu import SHORT_ROW
from ramet.schedule.plan import Row, Span

NUM_SLOTS = 6000
CPU = torch.device("cpu")
BFLOAT16_TOLERANCE = 2e-2  # of outputs near 1: keys, values and results are rounded to 8 bits, and merged results once a level
BACKENDS: dict[str, Any] = {name: ATTENTION.get(name) for name in ATTENTION.names() if name != "reference"}
BACKENDS["cpu, everything shared"] = partial(ATTENTION.get("cpu"), min_saved_tokens=0)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Case:
    """A tree: `fan_outs` children a node at each depth, edges and leaves of lengths drawn from the ranges."""

    fan_outs: Sequence[int]
    edge_lens: tuple[int, int]
    new_lens: tuple[int, int]
    window: int | None = None
    is_scattered: bool = True
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 8
    num_computing: int = 0  # nodes whose tokens are written in this same step, by rows of their own


CASES = {
    "one decode row": Case([1], (40, 40), (1, 1)),
    "one decode row, consecutive": Case([1], (40, 40), (1, 1), is_scattered=False),
    "empty prefix": Case([], (1, 1), (30, 30)),
    "empty prefixes": Case([4], (0, 0), (1, 30)),
    "first token of all": Case([3], (0, 0), (1, 1)),
    "deep": Case([1, 2, 1, 2, 1, 2], (1, 9), (1, 1)),
    "deep, one-token edges": Case([2, 2, 2, 2], (1, 1), (1, 2)),
    "wide": Case([40], (1, 60), (1, 1)),
    "wide, shared root": Case([1, 24], (1, 80), (1, 1), is_scattered=False),
    "wide, long shared root": Case([1, 12], (200, 201), (1, 1)),
    "ragged": Case([2, 3, 2], (0, 70), (1, 40)),
    "ragged lengths": Case([20], (0, 150), (1, 1)),
    "chunks on a context": Case([1, 3], (20, 30), (SHORT_ROW + 1, 50)),
    "options of a select": Case([1, 8], (30, 40), (1, SHORT_ROW)),
    "written in this step": Case([2, 3], (1, 40), (1, 20), num_computing=3),
    "window": Case([2, 3], (1, 40), (1, 40), window=17),
    "window of one": Case([2, 2], (1, 20), (1, 20), window=1),
    "window, decode": Case([1, 9], (20, 60), (1, 1), window=30),
    "window, long rows": Case([1, 2, 2], (5, 90), (60, 80), window=50),
    "window never reached": Case([2, 3], (1, 20), (1, 20), window=500),
    "window, written in this step": Case([2, 2], (10, 40), (1, 30), window=25, num_computing=2),
    **{f"group {g}": Case([2, 2], (1, 40), (1, 20), num_heads=2 * g, num_kv_heads=2) for g in (1, 2, 3, 4, 5, 7, 8)},
    **{f"head size {d}": Case([2, 2], (1, 40), (1, 30), head_dim=d) for d in (64, 80, 128)},
    "head size 64, window": Case([2, 2], (10, 40), (1, 30), window=20, head_dim=64),
}


def forest(case: Case, rng: np.random.Generator) -> tuple[Row, ...]:
    """Rows in depth-first order."""
    free = iter(range(0, 10**9)) if not case.is_scattered else iter(rng.permutation(NUM_SLOTS))
    keys = iter(range(1, 10**9))
    rows: list[Row] = []
    num_computing = case.num_computing

    def draw(bounds: tuple[int, int]) -> int:
        return int(rng.integers(bounds[0], bounds[1] + 1))

    def take(num: int) -> Any:
        return np.array([next(free) for _ in range(num)], dtype=np.int64)

    def row(path: tuple[Span, ...], slots: Any) -> None:
        start = sum(len(span.slots) for span in path)
        rows.append(Row(str(len(rows)), start, np.zeros(len(slots), np.int64), slots, path, 1))

    def walk(path: tuple[Span, ...], depth: int) -> None:
        nonlocal num_computing
        if depth == len(case.fan_outs):
            row(path, take(draw(case.new_lens)))
            return
        for _ in range(case.fan_outs[depth]):
            slots = take(draw(case.edge_lens))
            if not len(slots):
                walk(path, depth + 1)
                continue
            if num_computing and depth < 2:
                num_computing -= 1
                row(path, slots)
            walk((*path, Span(next(keys), sum(len(span.slots) for span in path), slots)), depth + 1)

    walk((), 0)
    return tuple(rows)


def poisoned_pool(rows: Sequence[Row], case: Case, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    pool = torch.full((NUM_SLOTS, 2 * case.num_kv_heads, case.head_dim), torch.nan, dtype=dtype)
    for row in rows:
        for slots in (row.slots, *(span.slots for span in row.context)):
            index = torch.from_numpy(slots)
            pool[index] = torch.randn(len(slots), *pool.shape[1:], generator=generator).to(dtype)
    return pool


def both(case: Case, backend: Any, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = forest(case, np.random.default_rng(seed))
    generator = torch.Generator().manual_seed(seed)
    pool = poisoned_pool(rows, case, dtype, generator)
    num_tokens = sum(len(row.token_ids) for row in rows)
    query = torch.randn(num_tokens, case.num_heads, case.head_dim, generator=generator).to(dtype)
    shape = AttentionShape(case.num_heads, case.num_kv_heads, case.head_dim, case.head_dim**-0.5, dtype, CPU)
    wide = torch.cat((query, query), dim=1)  # queries reach a backend as a slice of a wider matrix
    out = backend(rows, shape, case.window).attend(wide[:, : case.num_heads], pool)
    reference = ATTENTION.get("reference")(rows, shape, case.window).attend(query.float(), pool.float())
    assert torch.equal(wide, torch.cat((query, query), dim=1)), "the query was changed"
    assert out.shape == query.shape and out.dtype == dtype
    return out.float(), reference


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_reference(backend: str, name: str) -> None:
    for seed in range(2):
        out, reference = both(CASES[name], BACKENDS[backend], torch.float32, seed)
        torch.testing.assert_close(out, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_reference_in_bfloat16(backend: str, name: str) -> None:
    out, reference = both(CASES[name], BACKENDS[backend], torch.bfloat16, 3)
    torch.testing.assert_close(out, reference, rtol=BFLOAT16_TOLERANCE, atol=BFLOAT16_TOLERANCE)


def test_reference_by_hand() -> None:
    """Two keys with equal scores give the mean of their values; a window of one gives the token's own value."""
    pool = torch.full((4, 2, 2), torch.nan)
    pool[3] = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    pool[1] = torch.tensor([[0.0, 0.0], [3.0, 6.0]])
    row = Row("a", 1, np.array([7]), np.array([1]), (Span(1, 0, np.array([3])),), 1)
    shape = AttentionShape(1, 1, 2, 1.0, torch.float32, CPU)
    plan = ATTENTION.get("reference")
    assert plan([row], shape, None).attend(torch.ones(1, 1, 2), pool).tolist() == [[[2.0, 4.0]]]
    assert plan([row], shape, 1).attend(torch.ones(1, 1, 2), pool).tolist() == [[[3.0, 6.0]]]
