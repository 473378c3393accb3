"""Sets of Unicode code points as sorted, disjoint, inclusive ranges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]

MAX_CODE_POINT: Final = 0x10FFFF
SCALARS: Final[Ranges] = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))  # every code point that UTF-8 can spell


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort, merge what touches, and return the normal form."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All other code points, 0 to 0x10FFFF."""
    gaps = []
    at = 0
    for low, high in ranges:
        if low > at:
            gaps.append((at, low - 1))
        at = high + 1
    if at <= MAX_CODE_POINT:
        gaps.append((at, MAX_CODE_POINT))
    return tuple(gaps)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """What both hold."""
    shared = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            shared.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(shared)


def from_points(points: Iterable[int]) -> Ranges:
    """The set of these code points."""
    return union((point, point) for point in points)
