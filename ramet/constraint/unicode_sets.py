r"""The sets behind `\w`, `\d`, `\s`, `\p{..}` and `(?i)`, taken from the running Python so that they are those of its `re`."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from ramet.constraint.charset import Ranges, complement, from_points, intersect, union

_ASCII: Final[Mapping[str, Ranges]] = {
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "d": ((0x30, 0x39),),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
}
# Planes 0 to 3 and 14; no other plane holds an assigned character outside private use. A test looks at all of them.
_ASSIGNED: Final = ((0, 0x3FFFF), (0xE0000, 0xE0FFF))
_PRIVATE: Final[Ranges] = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))
_LONG_NAMES: Final[Mapping[str, str]] = {
    "letter": "L",
    "cased_letter": "LC", "uppercase_letter": "Lu", "lowercase_letter": "Ll", "titlecase_letter": "Lt", "modifier_letter": "Lm",
    "other_letter": "Lo", "mark": "M", "nonspacing_mark": "Mn", "spacing_mark": "Mc", "enclosing_mark": "Me", "number": "N",
    "decimal_number": "Nd", "letter_number": "Nl", "other_number": "No", "punctuation": "P", "connector_punctuation": "Pc",
    "dash_punctuation": "Pd", "open_punctuation": "Ps", "close_punctuation": "Pe", "initial_punctuation": "Pi", "final_punctuation": "Pf",
    "other_punctuation": "Po", "symbol": "S", "math_symbol": "Sm", "currency_symbol": "Sc", "modifier_symbol": "Sk", "other_symbol": "So",
    "separator": "Z", "space_separator": "Zs", "line_separator": "Zl", "paragraph_separator": "Zp", "other": "C", "control": "Cc",
    "format": "Cf", "surrogate": "Cs", "private_use": "Co", "unassigned": "Cn",
}  # fmt: skip


def shorthand(letter: str, is_unicode: bool) -> Ranges:
    r"""The set of `\w`, `\d`, `\s` (a small letter) or of the complement (a capital)."""
    ranges = _unicode_shorthand(letter.lower()) if is_unicode else _ASCII[letter.lower()]
    return ranges if letter.islower() else complement(ranges)


@lru_cache(maxsize=4)
def _unicode_shorthand(letter: str) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in _ASSIGNED:
        text = _every_character(first, last)
        found += [(first + match.start(), first + match.end() - 1) for match in re.finditer(rf"\{letter}+", text)]
    return union(found)


def _every_character(first: int, last: int) -> str:
    return np.arange(first, last + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


def category(name: str) -> Ranges | None:
    r"""The set of a general category, short (`Lu`, `L`) or long (`Uppercase_Letter`); None when there is no such category."""
    short = _LONG_NAMES.get(name.lower().replace(" ", "_").replace("-", "_"), name)
    table = _categories()
    if short == "LC":
        return union(table["Lu"] + table["Ll"] + table["Lt"])
    if len(short) == 1:
        parts = [ranges for key, ranges in table.items() if key[0] == short]
        return union(pair for ranges in parts for pair in ranges) or None
    return table.get(short)


@lru_cache(maxsize=1)
def _categories() -> Mapping[str, Ranges]:
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for first, last in _ASSIGNED:
        names = list(map(unicodedata.category, _every_character(first, last)))
        start = 0
        for at in range(1, len(names) + 1):
            if at == len(names) or names[at] != names[start]:
                found[names[start]].append((first + start, first + at - 1))
                start = at
    known = {key: union(ranges) for key, ranges in found.items()}
    known["Co"] = union(known["Co"] + _PRIVATE)
    known["Cn"] = complement(union(pair for key, ranges in known.items() if key != "Cn" for pair in ranges))
    return known


def ignore_case(ranges: Ranges, is_unicode: bool) -> Ranges:
    """The set of all characters that `re` takes for one of these under `(?i)`; without Unicode only A to Z have two cases."""
    if not is_unicode:
        upper = intersect(ranges, ((0x41, 0x5A),))
        lower = intersect(ranges, ((0x61, 0x7A),))
        return union([*ranges, *((a + 32, b + 32) for a, b in upper), *((a - 32, b - 32) for a, b in lower)])
    groups, cased = _case_groups()
    members = intersect(ranges, cased)
    points = {other for low, high in members for point in range(low, high + 1) for other in groups[point]}
    return union([*ranges, *from_points(points)])


@lru_cache(maxsize=1)
def _case_groups() -> tuple[Mapping[int, tuple[int, ...]], Ranges]:
    """Characters that `re` takes for each other: those whose simple lower cases are equal, or have the same upper case."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for char in _every_character(0, 0x1FFFF):
        lower = char.lower()
        if lower != char or char.upper() != char:
            by_key[lower[0].upper()].append(ord(char))  # the one lower case of two characters, that of U+0130, starts with its simple one
    groups = {point: tuple(group) for group in by_key.values() for point in group}
    return groups, from_points(groups)
