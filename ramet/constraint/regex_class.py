r"""Escapes and `[...]` classes of a regular expression, as Python's `re` reads them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import Final

from ramet.constraint import unicode_sets
from ramet.constraint.charset import MAX_CODE_POINT, Ranges, complement, union
from ramet.constraint.limits import Source

OCTAL: Final = frozenset("01234567")
DIGITS: Final = frozenset("0123456789")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_HEX_LENGTHS: Final = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Flags:
    """What is switched on at a place of the pattern."""

    is_unicode: bool = False
    is_ignoring_case: bool = False
    is_dot_all: bool = False

    def with_letters(self, on: str, off: str) -> Flags:
        """After `(?on-off:`."""
        changed = self
        for letters, value in ((on, True), (off, False)):
            if "i" in letters:
                changed = replace(changed, is_ignoring_case=value)
            if "s" in letters:
                changed = replace(changed, is_dot_all=value)
        if "u" in on or "a" in on:
            changed = replace(changed, is_unicode="u" in on)
        return changed


class Reader:
    """A place in the pattern."""

    __slots__ = ("at", "source", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.at = 0

    def peek(self, length: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.text[self.at : self.at + length]

    def take(self, expected: str) -> bool:
        """Step over this text if it comes next."""
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def take_while(self, allowed: frozenset[str], limit: int) -> str:
        """Step over at most `limit` of these characters."""
        start = self.at
        while self.at < len(self.text) and self.at - start < limit and self.text[self.at] in allowed:
            self.at += 1
        return self.text[start : self.at]


def with_case(ranges: Ranges, flags: Flags) -> Ranges:
    """The set as `(?i)` widens it, or as it is."""
    return unicode_sets.ignore_case(ranges, flags.is_unicode) if flags.is_ignoring_case else ranges


def read_escape(reader: Reader, flags: Flags, in_class: bool) -> tuple[Ranges, bool]:
    r"""What stands behind a backslash (already read): its set, and whether it is one character (which may bound a range).

    Raises InvalidConstraint for back-references, boundaries and what `re` does not know.
    """
    start = reader.at - 1
    char = reader.peek()
    if not char:
        raise reader.source.error("a backslash stands at the end", start)
    if char in DIGITS:
        return _point(_numbered(reader, start, in_class)), True
    reader.at += 1
    if char in "wWdDsS":
        return unicode_sets.shorthand(char, flags.is_unicode), False
    if char in "pP":
        return _property(reader, start, is_negated=char == "P"), False
    if char in _CONTROL:
        return _point(_CONTROL[char]), True
    if char in _HEX_LENGTHS:
        length = _HEX_LENGTHS[char]
        digits = reader.take_while(_HEX, length)
        if len(digits) != length:
            raise reader.source.error(f"\\{char} needs {length} hexadecimal digits", start)
        if int(digits, 16) > MAX_CODE_POINT:
            raise reader.source.error("there is no such code point", start)
        return _point(int(digits, 16)), True
    if char == "N":
        return _point(_named(reader, start)), True
    if char == "b" and in_class:
        return _point(8), True
    if char in "bB" and not in_class:
        raise reader.source.error("word boundaries are not offered: say with a class what may stand on each side", start)
    if char in _LETTERS:
        raise reader.source.error(f"unknown escape \\{char}", start)
    return _point(ord(char)), True


def _point(code_point: int) -> Ranges:
    return ((code_point, code_point),)


def _numbered(reader: Reader, start: int, in_class: bool) -> int:
    """An octal escape; any other number is a back-reference."""
    text = reader.text
    if text[reader.at] == "0":
        return int(reader.take_while(OCTAL, 3), 8)
    digits = text[reader.at : reader.at + 3]
    is_octal = len(digits) == 3 and all(digit in OCTAL for digit in digits)
    if in_class and digits[0] in OCTAL:
        digits = reader.take_while(OCTAL, 3)
    elif is_octal:
        reader.at += 3
    elif in_class:
        raise reader.source.error(f"unknown escape \\{digits[0]}", start)
    else:
        raise reader.source.error("back-references are not offered: no finite automaton can follow them", start)
    if int(digits, 8) > 0o377:
        raise reader.source.error(f"the octal escape \\{digits} is above \\377", start)
    return int(digits, 8)


def _braced(reader: Reader, start: int, what: str) -> str:
    end = reader.text.find("}", reader.at)
    if not reader.take("{") or end < 0 or end == reader.at:
        raise reader.source.error(f"{what} needs a name in braces", start)
    name = reader.text[reader.at : end]
    reader.at = end + 1
    return name


def _named(reader: Reader, start: int) -> int:
    name = _braced(reader, start, "\\N")
    try:
        return ord(unicodedata.lookup(name))
    except (KeyError, TypeError) as error:  # TypeError: the name of a sequence of several characters
        raise reader.source.error(f"no character is called {name!r}", start) from error


def _property(reader: Reader, start: int, is_negated: bool) -> Ranges:
    char = reader.peek()
    if char == "{":
        name = _braced(reader, start, "\\p")
    else:
        name = char
        reader.at += 1
    if name.startswith("^"):
        name, is_negated = name[1:], not is_negated
    ranges = unicode_sets.category(name)
    if ranges is None:
        raise reader.source.error(f"\\p takes a general category such as L, Lu or Nd; {name!r} is none", start)
    return complement(ranges) if is_negated else ranges


def read_class(reader: Reader, flags: Flags) -> Ranges:
    """The set of `[...]`, whose opening bracket is already read."""
    start = reader.at - 1
    is_negated = reader.take("^")
    found: list[tuple[int, int]] = []
    first = reader.at
    while True:
        at = reader.at
        if not reader.peek():
            raise reader.source.error("the class is not closed: ] is missing", start)
        if at != first and reader.take("]"):
            break
        low, is_single = _member(reader, flags)
        if is_single and (reader.peek() != "-" or reader.peek(2) == "-]"):
            check_case(reader, low[0][0], low[0][0], flags, at)
        if reader.peek() != "-":
            found += low
            continue
        reader.at += 1
        if reader.peek() == "]":
            reader.at += 1
            found += [*low, (45, 45)]
            break
        if not reader.peek():
            raise reader.source.error("the class is not closed: ] is missing", start)
        high, is_high_single = _member(reader, flags)
        if not (is_single and is_high_single):
            raise reader.source.error(f"bad range {reader.text[at : reader.at]}: a set cannot bound it", at)
        if high[0][0] < low[0][0]:
            raise reader.source.error(f"bad range {reader.text[at : reader.at]}: it ends before it starts", at)
        check_case(reader, low[0][0], high[0][0], flags, at)
        found.append((low[0][0], high[0][0]))
    ranges = with_case(union(found), flags)
    return complement(ranges) if is_negated else ranges


def check_case(reader: Reader, low: int, high: int, flags: Flags, at: int) -> None:
    """Refuse letters beyond U+FFFF where `re` itself folds their case by halves: ranges under `(?i)` alone, single ones under `(?iu)`."""
    if flags.is_ignoring_case and high > 0xFFFF and flags.is_unicode == (low == high):
        pair = ((low, high),)
        if unicode_sets.ignore_case(pair, is_unicode=True) != pair:
            way_out = "put it into (?-i:...)" if flags.is_unicode else "use (?iu)"
            raise reader.source.error(f"a letter beyond U+FFFF is not offered here under (?i): {way_out}", at)


def _member(reader: Reader, flags: Flags) -> tuple[Ranges, bool]:
    char = reader.peek()
    reader.at += 1
    if char == "\\":
        return read_escape(reader, flags, in_class=True)
    return _point(ord(char)), True
