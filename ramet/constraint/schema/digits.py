"""The texts of numbers from zero upwards, without sign or exponent, read digit by digit against bounds and a divisor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from ramet.constraint.charset import Ranges, union
from ramet.constraint.limits import Source
from ramet.constraint.schema.elimination import knots, to_tree
from ramet.constraint.schema.language import Arcs, Language, explore
from ramet.constraint.schema.trees import NOTHING
from ramet.constraint.syntax import Chars, Node

if TYPE_CHECKING:
    from ramet.constraint.schema.numbers import Numbers

_MAX_STATES: Final = 1600
_MAX_KNOT: Final = 6  # states of a divisor that may lead to each other
_SPLIT_PART: Final = 6  # digits behind the point of a number that must not be whole
_MAX_DIGITS: Final = 15  # that a double keeps; also of the multiples of a divisor that is more entangled


def digits(source: Source, numbers: Numbers, made: list[Node]) -> Node:
    """The tree of these texts; NOTHING when there is none. Raises TooLarge for a divisor that needs too many states."""
    if numbers.bounds.high is not None and numbers.bounds.high < 0:
        return NOTHING
    machine = _Machine(numbers)
    language = _explored(source, machine)
    if _is_entangled(language):
        language = _minimal(language)
    if _is_entangled(language):
        machine.limit_digits(_MAX_DIGITS)
        language = _explored(source, machine)
    return to_tree(source, language, Chars, made)


def _explored(source: Source, machine: _Machine) -> Language:
    return explore(source, _State("start", 0, (0,) * len(machine.targets), 0, False), machine.arcs_of, machine.is_final, _MAX_STATES)


def _is_entangled(language: Language) -> bool:
    return not language.is_empty and any(len(knot) > _MAX_KNOT for knot in knots(language))


class _State(NamedTuple):
    phase: str  # "start", "zero" (a single 0), "whole", "point" (just read), "part" (behind the point)
    num_digits: int  # of this phase, up to where they no longer matter
    relations: tuple[int, ...]  # of the digits so far to those of each target: -1 below, 0 equal, 1 above
    residue: int
    is_split: bool  # whether a digit behind the point was not 0, where that counts


class _Machine:
    """Compares what is read with the targets: the bounds first, then the excluded numbers."""

    def __init__(self, numbers: Numbers) -> None:
        low, high = numbers.bounds.low, numbers.bounds.high
        low = None if low is None or low <= 0 else low
        self._is_integer = numbers.is_integer
        self._is_split = numbers.is_split
        self._rules = [rule for rule, bound in (("low", low), ("high", high)) if bound is not None] + ["not"] * len(numbers.excluded)
        self.targets = [_split(number) for number in (low, high, *numbers.excluded) if number is not None]
        self._has_divisor = numbers.multiple is not None
        self._modulus, self._scale = _divisor(numbers.multiple)
        self._last_whole = 1 + max((len(whole) for whole, _ in self.targets), default=0)
        self._last_part = max([self._scale, *(len(part) for _, part in self.targets)])
        self._limit: int | None = None
        self._max_part: int | None = None
        if self._is_split:  # who reads numbers as doubles must still see a fraction
            num_whole = max((len(whole) for whole, _ in self.targets), default=1)
            num_part = max(_SPLIT_PART, 1 + max((len(part) for _, part in self.targets), default=0))
            self._limit = self._last_whole = min(max(_MAX_DIGITS - num_part, num_whole), _MAX_DIGITS - 1)
            self._max_part = _MAX_DIGITS - self._limit
            self._last_part = max(self._last_part, self._max_part)
        elif self._has_divisor and not self._is_integer:  # who reads numbers as doubles must still see a multiple
            self.limit_digits(_MAX_DIGITS - self._scale)

    def limit_digits(self, limit: int) -> None:
        """Allow no more whole digits than this, or than the targets have."""
        if not self._is_split:
            self._limit = self._last_whole = max(limit, self._last_whole)

    def arcs_of(self, state: _State) -> Iterator[tuple[Ranges, _State]]:
        if state.phase in ("zero", "whole") and not self._is_integer:
            relations = tuple(map(self._whole_relation, range(len(self.targets)), state.relations, [state.num_digits] * len(self.targets)))
            yield ((0x2E, 0x2E),), _State("point", 0, relations, state.residue, False)
        if state.phase == "zero" or (state.phase == "whole" and state.num_digits == self._limit):
            return
        if state.phase == "part" and state.num_digits == self._max_part:
            return
        for digit in range(10):
            target = self._behind(state, digit)
            if target is not None:
                yield ((0x30 + digit, 0x30 + digit),), target

    def _behind(self, state: _State, digit: int) -> _State | None:
        at = state.num_digits
        if state.phase in ("start", "whole"):
            phase = "whole" if digit or state.phase == "whole" else "zero"
            relations = tuple(
                self._compare(relation, whole, at, digit) if at < len(whole) else 1  # a longer number is larger
                for relation, (whole, _) in zip(state.relations, self.targets, strict=True)
            )
            residue = (state.residue * 10 + digit) % self._modulus
            return _State(phase, min(at + 1, self._last_whole), relations, residue, False)
        relations = tuple(
            self._compare(relation, part, at, digit) for relation, (_, part) in zip(state.relations, self.targets, strict=True)
        )
        residue = state.residue
        if self._has_divisor:
            if at < self._scale:
                residue = (residue * 10 + digit) % self._modulus
            elif digit:
                return None
        return _State("part", min(at + 1, self._last_part), relations, residue, state.is_split or (self._is_split and digit > 0))

    def _compare(self, relation: int, target: str, at: int, digit: int) -> int:
        expected = int(target[at]) if at < len(target) else 0
        return relation or (digit > expected) - (digit < expected)

    def _whole_relation(self, number: int, relation: int, num_digits: int) -> int:
        """How the whole part compares, now that its length is known: a longer one is larger."""
        length = len(self.targets[number][0])
        return relation if num_digits == length else 1 if num_digits > length else -1

    def is_final(self, state: _State) -> bool:
        if state.phase in ("start", "point") or state.is_split != self._is_split:
            return False
        is_part = state.phase == "part"
        for number, rule in enumerate(self._rules):
            relation = state.relations[number]
            if not is_part:
                relation = self._whole_relation(number, relation, state.num_digits)
            at = state.num_digits if is_part else 0
            if relation == 0 and at < len(self.targets[number][1]):
                relation = -1  # what is left of the target is not zero
            if relation == {"low": -1, "high": 1, "not": 0}[rule]:
                return False
        rest = self._scale - (min(state.num_digits, self._scale) if is_part else 0)
        return bool(state.residue * 10**rest % self._modulus == 0)


def _split(number: Decimal) -> tuple[str, str]:
    """The digits before and behind the point, without zeros that say nothing."""
    whole, _, part = format(number.copy_abs(), "f").partition(".")
    return whole.lstrip("0") or "0", part.rstrip("0")


def _divisor(multiple: Fraction | None) -> tuple[int, int]:
    """(p, k) with multiple = p / 10**k and k as small as can be."""
    if multiple is None:
        return 1, 0
    scale = 0
    while (multiple * 10**scale).denominator > 1:
        scale += 1
    return int(multiple * 10**scale), scale


def _minimal(language: Language) -> Language:
    """The automaton with as few states as possible (Moore)."""
    block = [int(final) for final in language.is_final]
    num_blocks = 0
    while len(set(block)) > num_blocks:
        num_blocks = len(set(block))
        numbers: dict[object, int] = {}
        signatures = [(block[state], frozenset(_joined(row, block))) for state, row in enumerate(language.arcs)]
        block = [numbers.setdefault(signature, len(numbers)) for signature in signatures]
    first: dict[int, int] = {}
    for state, number in enumerate(block):
        first.setdefault(number, state)  # numbers appear in ascending order, so state 0 stays the start
    return Language(
        [_joined(language.arcs[state], block) for state in first.values()], [language.is_final[state] for state in first.values()]
    )


def _joined(row: Arcs, block: Sequence[int]) -> list[tuple[Ranges, int]]:
    by_target: dict[int, list[tuple[int, int]]] = {}
    for ranges, target in row:
        by_target.setdefault(block[target], []).extend(ranges)
    return [(union(ranges), number) for number, ranges in by_target.items()]
