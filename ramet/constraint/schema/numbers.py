"""The texts of numbers within bounds: exact comparisons of decimal digits, one after the other.

A number without bounds is any number of RFC 8259. One with bounds or a `multipleOf` has no exponent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from ramet.constraint.limits import Source
from ramet.constraint.schema.digits import digits
from ramet.constraint.schema.trees import NOTHING, choose, join
from ramet.constraint.syntax import Chars, Node, Repeat, alt, literal, seq

_DIGITS: Final = Chars(((0x30, 0x39),))
_WHOLE: Final = alt([literal("0"), seq([Chars(((0x31, 0x39),)), Repeat(_DIGITS, 0, None)])])
ANY_INTEGER: Final = seq([Repeat(literal("-"), 0, 1), _WHOLE])
ANY_NUMBER: Final = seq(
    [
        ANY_INTEGER,
        Repeat(seq([literal("."), Repeat(_DIGITS, 1, None)]), 0, 1),
        Repeat(seq([alt([literal("e"), literal("E")]), Repeat(alt([literal("+"), literal("-")]), 0, 1), Repeat(_DIGITS, 1, None)]), 0, 1),
    ]
)
_ABOVE_ZERO: Final = Decimal("1e-30")  # the least number that an excluded zero lets through


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that are included, None: none."""

    low: Decimal | None = None
    high: Decimal | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no number is within."""
        return self.low is not None and self.high is not None and self.low > self.high

    def within(self, low: Decimal | None, high: Decimal | None) -> Bounds:
        """The bounds that are tighter."""
        return Bounds(
            self.low if low is None else low if self.low is None else max(self.low, low),
            self.high if high is None else high if self.high is None else min(self.high, high),
        )

    def whole(self) -> Bounds:
        """The whole numbers within."""
        return Bounds(
            None if self.low is None else Decimal(math.ceil(self.low)), None if self.high is None else Decimal(math.floor(self.high))
        )


def next_above(bound: Decimal) -> Decimal:
    """The least bound that excludes `bound` for whoever reads numbers as doubles; next to zero it is 1e-30."""
    return _ABOVE_ZERO if bound == 0 else Decimal(repr(math.nextafter(float(bound), math.inf)))


def next_below(bound: Decimal) -> Decimal:
    """The greatest bound that excludes `bound` for whoever reads numbers as doubles; next to zero it is -1e-30."""
    return next_above(bound.copy_negate()).copy_negate()


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is asked of a number; `is_split` asks for a fraction that is not zero."""

    bounds: Bounds = Bounds()
    is_integer: bool = False
    is_split: bool = False
    multiple: Fraction | None = None
    excluded: tuple[Decimal, ...] = ()


def number_tree(source: Source, numbers: Numbers, made: list[Node]) -> Node:
    """The texts of these numbers. NOTHING when there is none. Raises TooLarge for a multiple that needs too many states."""
    if numbers.is_integer:
        multiple = numbers.multiple and Fraction(numbers.multiple.numerator)
        numbers = replace(numbers, bounds=numbers.bounds.whole(), multiple=multiple)
    bounds = numbers.bounds
    if bounds.is_empty or (numbers.is_integer and numbers.is_split):
        return NOTHING
    if numbers in (Numbers(), Numbers(is_integer=True)):
        return ANY_INTEGER if numbers.is_integer else ANY_NUMBER
    above = tuple(value for value in numbers.excluded if value >= 0)
    below = (Decimal(0), *(value.copy_negate() for value in numbers.excluded if value < 0))
    mirrored = Bounds(bounds.high and bounds.high.copy_negate(), bounds.low and bounds.low.copy_negate())
    return choose(
        [
            digits(source, replace(numbers, excluded=above), made),
            join(literal("-"), digits(source, replace(numbers, bounds=mirrored, excluded=below), made)),
        ]
    )
