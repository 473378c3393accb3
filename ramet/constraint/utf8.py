"""A set of code points as the smallest automaton over their UTF-8 bytes.

Code points that share their last bytes share the nodes that read them, so the class of all characters has 8 nodes, not a million.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ramet.constraint.charset import MAX_CODE_POINT, Ranges, intersect

# (first and last code point, mark of the lead byte, number of continuation bytes); surrogates have no spelling.
_LENGTHS: Final = (
    (0, 0x7F, 0x00, 0),
    (0x80, 0x7FF, 0xC0, 1),
    (0x800, 0xD7FF, 0xE0, 2),
    (0xE000, 0xFFFF, 0xE0, 2),
    (0x10000, MAX_CODE_POINT, 0xF0, 3),
)


class ByteNode:
    """A state inside a character: inclusive byte ranges and where they lead, None at the character's end. Compared by identity."""

    __slots__ = ("arcs", "lows", "num_nodes")

    def __init__(self, arcs: tuple[tuple[int, int, ByteNode | None], ...], num_nodes: int = 0) -> None:
        self.arcs = arcs
        self.lows = [low for low, _, _ in arcs]
        self.num_nodes = num_nodes  # of the whole automaton, on its root only

    @property
    def is_inside_char(self) -> bool:
        """Whether bytes of the character were read already."""
        return 0x80 <= self.lows[0] <= 0xBF

    def step(self, byte: int) -> ByteNode | bool | None:
        """The next node; True at the end of a character; None when the byte is not allowed here."""
        at = bisect_right(self.lows, byte) - 1
        if at < 0 or byte > self.arcs[at][1]:
            return None
        target = self.arcs[at][2]
        return True if target is None else target


@lru_cache(maxsize=256)
def utf8_automaton(ranges: Ranges, alphabet: frozenset[int] | None = None) -> ByteNode | None:
    """The automaton of a set of code points, None when nothing is left of it.

    With an `alphabet`, characters that need another byte are left out. No node is a dead end.
    """
    return _Builder(alphabet).build(ranges)


class _Builder:
    """Makes nodes bottom-up; equal ones are made once."""

    def __init__(self, alphabet: frozenset[int] | None) -> None:
        self._alphabet = alphabet
        self._nodes: dict[tuple[tuple[int, int, ByteNode | None], ...], ByteNode] = {}
        self._full: dict[int, ByteNode | None] = {}

    def build(self, ranges: Ranges) -> ByteNode | None:
        leads: list[tuple[int, int, ByteNode | None]] = []
        for first, last, mark, num_more in _LENGTHS:
            part = intersect(ranges, ((first, last),))
            if not part:
                continue
            unit = 64**num_more
            for digit_low, digit_high, inner in _split(part, unit):
                self._add(leads, mark | digit_low, mark | digit_high, inner, num_more)
        arcs = _joined(leads)
        return ByteNode(arcs, 1 + len(self._nodes)) if arcs else None

    def _node(self, ranges: Ranges | None, num_more: int) -> ByteNode | None:
        """The node that reads `num_more` continuation bytes of a number in `ranges` (None: any number)."""
        if ranges is None:
            if num_more not in self._full:
                self._full[num_more] = self._node(((0, 64**num_more - 1),), num_more)
            return self._full[num_more]
        arcs: list[tuple[int, int, ByteNode | None]] = []
        for low, high, inner in _split(ranges, 64 ** (num_more - 1)):
            self._add(arcs, 0x80 | low, 0x80 | high, inner, num_more - 1)
        key = _joined(arcs)
        if not key:
            return None
        if key not in self._nodes:
            self._nodes[key] = ByteNode(key)
        return self._nodes[key]

    def _add(self, arcs: list[tuple[int, int, ByteNode | None]], low: int, high: int, inner: Ranges | None, num_more: int) -> None:
        target = self._node(inner, num_more) if num_more else None
        if num_more and target is None:
            return  # the alphabet left nothing
        if self._alphabet is None:
            arcs.append((low, high, target))
        else:
            arcs.extend((byte, byte, target) for byte in range(low, high + 1) if byte in self._alphabet)


def _split(ranges: Ranges, unit: int) -> list[tuple[int, int, Ranges | None]]:
    """Cut numbers into the leading digit and the rest below `unit`: (first digit, last digit, rest), rest None where it is anything."""
    cut: list[tuple[int, int, Ranges | None]] = []
    open_digit = -1
    rest: list[tuple[int, int]] = []

    def close() -> None:
        if rest:
            cut.append((open_digit, open_digit, tuple(rest)))
            rest.clear()

    for low, high in ranges:
        while low <= high:
            digit, inside = divmod(low, unit)
            if inside == 0 and high - low + 1 >= unit:
                close()
                last = (high + 1) // unit - 1
                cut.append((digit, last, None))
                low = (last + 1) * unit
                continue
            if digit != open_digit:
                close()
                open_digit = digit
            end = min(high, (digit + 1) * unit - 1)
            rest.append((inside, end - digit * unit))
            low = end + 1
    close()
    return cut


def _joined(arcs: Sequence[tuple[int, int, ByteNode | None]]) -> tuple[tuple[int, int, ByteNode | None], ...]:
    """Neighbouring ranges with the same target as one."""
    joined: list[tuple[int, int, ByteNode | None]] = []
    for low, high, target in arcs:
        if joined and joined[-1][1] + 1 == low and joined[-1][2] is target:
            joined[-1] = (joined[-1][0], high, target)
        else:
            joined.append((low, high, target))
    return tuple(joined)
