"""The characters of a regular part, each a place, and which place may follow which (Glushkov 1961)."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final

from ramet.constraint.charset import Ranges, intersect
from ramet.constraint.grammar.rules import Char, Choice, Expr, Row, Times, Word

_MAX_PAIRS: Final = 100_000  # of places that are compared; beyond, everything counts as possible
# The first code point of each first byte of a character, in order.
_FIRST_BYTES: Final = (
    [(point, point, point) for point in range(0x80)]
    + [(0xC0 | high, high << 6, (high << 6) + 0x3F) for high in range(2, 0x20)]
    + [(0xE0 | high, max(high << 12, 0x800), (high << 12) + 0xFFF) for high in range(0x10)]
    + [(0xF0 | high, max(high << 18, 0x10000), min((high << 18) + 0x3FFFF, 0x10FFFF)) for high in range(5)]
)


@lru_cache(1024)
def first_bytes(ranges: Ranges) -> int:
    """The first bytes of the characters of a set, one bit a byte."""
    bits = at = 0
    for byte, low, high in _FIRST_BYTES:
        while at < len(ranges) and ranges[at][1] < low:
            at += 1
        if at == len(ranges):
            break
        if ranges[at][0] <= high:
            bits |= 1 << byte
    return bits


class Places:
    """The places of one part. Repetitions count as loops, so it allows more than the part does, never less.

    `first` and `rest` are the first bytes of the characters at its beginning, and of those that may come behind another.
    """

    def __init__(self, expr: Expr) -> None:
        self._ranges: list[Ranges] = []
        self._bytes: list[int] = []
        self._followers: list[set[int]] = []
        self._starts, self._ends, _ = self._read(expr)
        self.first = self._union(self._starts)
        self.rest = self._union({place for followers in self._followers for place in followers})

    def goes_on_in(self, longer: Places) -> int:
        """The first bytes of the characters with which `longer` may go on when this part has matched."""
        found = num_tried = 0
        ends = set(self._ends)
        seen: set[tuple[int, int]] = set()
        todo = [(self._starts, longer._starts)]
        while todo:
            for mine in (behind := todo.pop())[0]:
                num_tried += len(behind[1])
                if num_tried > _MAX_PAIRS:
                    return longer.rest
                for theirs in behind[1]:
                    if (mine, theirs) in seen or not self._meet(mine, longer, theirs):
                        continue
                    seen.add((mine, theirs))
                    if mine in ends:
                        found |= longer._union(longer._followers[theirs])
                    todo.append((self._followers[mine], longer._followers[theirs]))
        return found

    def _meet(self, mine: int, longer: Places, theirs: int) -> bool:
        return bool(self._bytes[mine] & longer._bytes[theirs]) and bool(intersect(self._ranges[mine], longer._ranges[theirs]))

    def _union(self, places: set[int]) -> int:
        bits = 0
        for place in places:
            bits |= self._bytes[place]
        return bits

    def _read(self, expr: Expr) -> tuple[set[int], set[int], bool]:
        """Number the places of a tree; gives those at its start, those at its end, and whether it matches the empty text."""
        if isinstance(expr, Char):
            place = self._place(expr.ranges)
            return {place}, {place}, False
        if isinstance(expr, Word):
            places = [self._place(((ord(letter), ord(letter)),)) for letter in expr.text]
            for place, after in pairwise(places):
                self._followers[place].add(after)
            return {places[0]}, {places[-1]}, False
        if isinstance(expr, Choice):
            read = [self._read(option) for option in expr.options]
            return set().union(*(one[0] for one in read)), set().union(*(one[1] for one in read)), any(one[2] for one in read)
        if isinstance(expr, Times):
            starts, ends, is_nullable = self._read(expr.body)
            if expr.max_count is None or expr.max_count > 1:
                self._link(ends, starts)
            return (starts, ends, is_nullable or expr.min_count == 0) if expr.max_count != 0 else (set(), set(), True)
        assert isinstance(expr, Row), f"{type(expr).__name__} in a regular part"
        starts, ends, is_nullable = set[int](), set[int](), True
        for part in expr.parts:
            part_starts, part_ends, is_part_nullable = self._read(part)
            self._link(ends, part_starts)
            if is_nullable:
                starts |= part_starts
            ends = part_ends | ends if is_part_nullable else part_ends
            is_nullable = is_nullable and is_part_nullable
        return starts, ends, is_nullable

    def _place(self, ranges: Ranges) -> int:
        self._ranges.append(ranges)
        self._bytes.append(first_bytes(ranges))
        self._followers.append(set())
        return len(self._ranges) - 1

    def _link(self, ends: set[int], starts: set[int]) -> None:
        for end in ends:
            self._followers[end] |= starts
