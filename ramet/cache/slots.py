"""The free slots of the KV pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]


class SlotAllocator:
    """Hands out slots of a pool of `num_slots`, lowest first, so that what is asked for at once mostly lies side by side."""

    def __init__(self, num_slots: int) -> None:
        assert num_slots > 0, "a pool needs at least one slot"
        self.num_slots = num_slots
        self._sorted: Slots = np.arange(num_slots, dtype=np.int64)
        self._next = 0  # _sorted[_next:] are free, ascending
        self._returned: list[Slots] = []
        self._num_returned = 0

    @property
    def num_free(self) -> int:
        """Slots that no one holds."""
        return len(self._sorted) - self._next + self._num_returned

    def alloc(self, num: int) -> Slots:
        """Take `num` slots, ascending; the caller has made sure that there are as many."""
        assert 0 <= num <= self.num_free, f"{num} slots wanted, {self.num_free} free"
        if num > len(self._sorted) - self._next:
            self._merge()
        taken = self._sorted[self._next : self._next + num].copy()
        self._next += num
        return taken

    def free(self, slots: Slots) -> None:
        """Give slots back. Giving one back twice is found by `check`."""
        if len(slots):
            self._returned.append(np.array(slots, dtype=np.int64))
            self._num_returned += len(slots)

    def free_slots(self) -> Slots:
        """All free slots, ascending."""
        self._merge()
        return self._sorted[self._next :]

    def _merge(self) -> None:
        if self._returned:
            self._sorted = np.sort(np.concatenate([self._sorted[self._next :], *self._returned]))
            self._next = 0
            self._returned.clear()
            self._num_returned = 0
