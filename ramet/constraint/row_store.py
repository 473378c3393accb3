"""The masks of one vocabulary, whatever constraint they belong to: equal ones once, and no more bytes than allowed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")

MAX_BYTES: Final = 1 << 29


class RowStore(Generic[Row]):
    """Rows by number; the least recently used ones are dropped, and a number never comes again. Hold `lock` around each call."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.lock = threading.Lock()
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._number_of_bits: dict[bytes, int] = {}
        self._rows: OrderedDict[int, tuple[bytes, Row, int]] = OrderedDict()
        self._num_made = 0

    def __contains__(self, number: int) -> bool:
        return number in self._rows

    def get(self, number: int) -> Row | None:
        """The row of a number, None when it was dropped."""
        kept = self._rows.get(number)
        if kept is None:
            return None
        self._rows.move_to_end(number)
        return kept[1]

    def put(self, bits: bytes, row: Row, row_bytes: int) -> tuple[int, Row]:
        """The number and the row that stand for these bits from now on: the given row, or an equal one that was there."""
        number = self._number_of_bits.get(bits)
        if number is not None:
            self._rows.move_to_end(number)
            return number, self._rows[number][1]
        number = self._number_of_bits[bits] = self._num_made
        self._num_made += 1
        self._rows[number] = (bits, row, len(bits) + row_bytes)
        self.num_bytes += len(bits) + row_bytes
        while self.num_bytes > self._max_bytes and len(self._rows) > 1:
            _, (dropped, _, num_bytes) = self._rows.popitem(last=False)
            del self._number_of_bits[dropped]
            self.num_bytes -= num_bytes
        return number, row
