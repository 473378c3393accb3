"""A stand-in for the KV pool that stores token ids, so that plans can be checked, and run, without a model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.schedule.plan import Plan, Row

Ids = npt.NDArray[np.int64]


class ShadowPool:
    """Each slot holds the id and the position of the token last written to it, and a hash of the whole prefix up to it.

    `run` does what a forward pass does to the pool, and asserts what a forward pass relies on: new tokens go to slots of their own,
    a context is complete, in order, and holds exactly one sequence.
    """

    def __init__(self, num_slots: int) -> None:
        self.token_ids: Ids = np.full(num_slots, -1, dtype=np.int64)
        self.positions: Ids = np.full(num_slots, -1, dtype=np.int64)
        self._hashes: list[int] = [0] * num_slots

    def run(self, plan: Plan) -> list[Ids]:
        """Write all new tokens of a plan, then read each row's whole sequence back; rows are in plan order."""
        written = np.concatenate([row.slots for row in plan.rows]) if plan.rows else np.empty(0, dtype=np.int64)
        assert len(np.unique(written)) == len(written), "two tokens of one step are written to the same slot"
        for row in plan.rows:
            assert len(row.token_ids) == len(row.slots) > 0, f"row {row.request_id} computes nothing"
            self.token_ids[row.slots] = row.token_ids
            self.positions[row.slots] = np.arange(row.start, row.start + len(row.slots))
        # A row may read what another row of this step writes: hash in the order of positions, shortest context first.
        for row in sorted(plan.rows, key=lambda r: r.start):
            prefix = self._hashes[int(row.context[-1].slots[-1])] if row.start else 0
            for slot, token_id in zip(row.slots.tolist(), row.token_ids.tolist(), strict=True):
                prefix = hash((prefix, token_id))
                self._hashes[slot] = prefix
        return [self._read(row) for row in plan.rows]

    def _read(self, row: Row) -> Ids:
        slots = np.concatenate([*(span.slots for span in row.context), row.slots])
        assert len(slots) == row.start + len(row.token_ids), f"row {row.request_id} lacks a part of its context"
        assert np.array_equal(self.positions[slots], np.arange(len(slots))), f"row {row.request_id} reads tokens of other positions"
        position = 0
        for span in row.context:
            assert span.start == position, f"row {row.request_id}: a span starts at {span.start}, not {position}"
            position += len(span.slots)
        ids: Ids = self.token_ids[slots]
        prefix = 0
        for slot, token_id in zip(slots.tolist(), ids.tolist(), strict=True):
            prefix = hash((prefix, token_id))
            assert self._hashes[slot] == prefix, f"row {row.request_id} reads keys and values that follow another prefix"
        return ids
