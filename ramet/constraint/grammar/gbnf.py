r"""The text of a grammar as llama.cpp writes it (GBNF), to rules.

    root   ::= "[" item ("," item)* "]"     # the whole text; a comment goes to the end of its line
    item   ::= [a-z]+ | [^\x00-\x1f"]{1,8}
             | root

A rule ends with its line, unless the line ends with `::=` or `|`, a bracket is open, or the next one begins with `|`. `.` is any character.
"""

from __future__ import annotations

from typing import Final, NoReturn

from ramet.constraint.charset import MAX_CODE_POINT, complement, union
from ramet.constraint.grammar.rules import Choice, Expr, Ref, Row, Times, char, literal, refs_of
from ramet.constraint.limits import Source
from ramet.errors import InvalidConstraint

_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45, "^": 94, "/": 47}
_HEX_LENGTHS: Final = {"x": 2, "u": 4, "U": 8}
_MAX_DIGITS: Final = 10
_MAX_WORD_LEN: Final = 4096  # a longer one is several parts


def parse_gbnf(source: Source, root: str = "root") -> dict[str, Expr]:
    """The rules of the grammar in `source.text`, by name.

    Raises InvalidConstraint, with line, column and offset, for what cannot be read, a rule that is missing or defined twice, no root, and
    what nests too deep or is over the limit with its repetitions written out.
    """
    return _Parser(source).parse(root)


class _Parser:
    """Recursive descent over one text."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._depth = 0
        self._size = 0
        self._size_before = 0

    def parse(self, root: str) -> dict[str, Expr]:
        rules: dict[str, Expr] = {}
        self._space(True)
        while self._at < len(self._text):
            start = self._at
            name = self._name("the name of a rule")
            self._space(False)
            self._expect("::=", "::= behind the name of a rule")
            if name in rules:
                self._fail(f"the rule {name} is defined twice", start)
            self._space(True)
            rules[name] = self._choice(False)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._fail(f"{self._text[self._at]!r} is not expected here")
            self._space(True)
        if not rules:
            self._fail("there is no rule: write one named root", 0)
        for expr in rules.values():
            for ref in refs_of(expr):
                if ref.name not in rules:
                    self._fail(f"there is no rule named {ref.name}", ref.offset)
        if root not in rules:
            self._fail(f"there is no rule named {root}, which the text begins with", 0)
        return rules

    def _choice(self, is_nested: bool) -> Expr:
        options = [self._row(is_nested)]
        while self._bar(is_nested):
            self._space(True)
            options.append(self._row(is_nested))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _bar(self, is_nested: bool) -> bool:
        before = self._at
        self._space(True)
        if self._take("|"):
            return True
        if not is_nested:
            self._at = before
        return False

    def _row(self, is_nested: bool) -> Expr:
        parts: list[Expr] = []
        while True:
            self._space(is_nested)
            start = self._at
            part = self._atom()
            if part is None:
                return parts[0] if len(parts) == 1 else Row(tuple(parts))
            self._count(1, start)
            size = self._size
            num_quantifiers = 0
            while (counts := self._quantifier()) is not None:
                num_quantifiers += 1
                if num_quantifiers > self._source.limits.max_nesting:
                    self._fail(f"repetitions nest deeper than the limit of {self._source.limits.max_nesting}", start)
                part = Times(part, *counts)
                most = max(counts[0], counts[1] or 0, 1)
                self._count((size - self._size_before) * (most - 1), start)
                size = self._size
            parts.append(part)

    def _atom(self) -> Expr | None:
        self._size_before = self._size
        next_char = self._text[self._at : self._at + 1]
        if next_char == '"':
            return self._literal()
        if next_char == "[":
            return self._set()
        if next_char == "(":
            return self._group()
        if self._take("."):
            return char(complement(()))
        if next_char in ("<", "!"):
            self._fail("tokens by name or number are not offered: write the text")
        if next_char and next_char in _NAME_CHARS:
            start = self._at
            return Ref(self._name("a name"), start)
        if next_char and next_char in "*+?{":
            self._fail(f"there is nothing to repeat before {next_char}")
        return None

    def _group(self) -> Expr:
        start = self._at
        self._at += 1
        self._depth += 1
        if self._depth > self._source.limits.max_nesting:
            self._fail(f"brackets nest deeper than the limit of {self._source.limits.max_nesting}", start)
        size_before = self._size
        expr = self._choice(True)
        self._space(True)
        if not self._take(")"):
            self._fail(
                "the bracket that opens here is not closed" if self._at >= len(self._text) else "a closing bracket is expected here", start
            )
        self._depth -= 1
        self._size_before = size_before
        return expr

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        start = self._at
        if not self._take("{"):
            return None
        self._space(True)
        low = self._number()
        high: int | None = low
        self._space(True)
        if self._take(","):
            self._space(True)
            high = None if self._text[self._at : self._at + 1] == "}" else self._number()
            self._space(True)
        self._expect("}", "} behind a repetition")
        if high is not None and high < low:
            self._fail(f"a repetition of at least {low} and at most {high} is empty", start)
        return low, high

    def _number(self) -> int:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "0123456789":
            self._at += 1
        if start == self._at:
            self._fail("a number is expected here")
        if self._at - start > _MAX_DIGITS:
            self._fail("the number is too large", start)
        return int(self._text[start : self._at])

    def _literal(self) -> Expr:
        start = self._at
        self._at += 1
        points: list[str] = []
        while not self._take('"'):
            if self._text[self._at : self._at + 1] in ("", "\n", "\r"):
                self._fail("the quotes that open here are not closed in their line", start)
            points.append(chr(self._char()))
        self._count(len(points), start)
        text = "".join(points)
        parts = [literal(text[at : at + _MAX_WORD_LEN]) for at in range(0, len(text), _MAX_WORD_LEN)]
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _set(self) -> Expr:
        start = self._at
        self._at += 1
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            if self._at >= len(self._text):
                self._fail("the set that opens here is not closed", start)
            low_at = self._at
            low = high = self._char()
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._char()
            if high < low:
                self._fail("this range of characters is empty: its end comes before its start", low_at)
            ranges.append((low, high))
        if not ranges:
            self._fail("an empty set: . is any character", start)
        merged = union(ranges)
        return char(complement(merged) if is_negated else merged)

    def _char(self) -> int:
        start = self._at
        first = self._text[self._at]
        self._at += 1
        if first != "\\":
            return ord(first)
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        length = _HEX_LENGTHS.get(letter)
        if length is None:
            self._fail(f"\\{letter} is no escape: known are " + " ".join("\\" + known for known in (*_ESCAPES, *_HEX_LENGTHS)), start)
        digits = self._text[self._at : self._at + length]
        self._at += length
        if len(digits) < length or not set(digits) <= _HEX:
            self._fail(f"\\{letter} takes {length} hexadecimal digits", start)
        point = int(digits, 16)
        if point > MAX_CODE_POINT or 0xD800 <= point <= 0xDFFF:
            self._fail(f"\\{letter}{digits} is no character", start)
        return point

    def _name(self, what: str) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in _NAME_CHARS:
            self._at += 1
        if start == self._at:
            self._fail(f"{what} is expected here")
        return self._text[start : self._at]

    def _space(self, with_newlines: bool) -> None:
        wanted = " \t\r\n" if with_newlines else " \t"
        while self._at < len(self._text):
            if self._text[self._at] in wanted:
                self._at += 1
            elif self._text[self._at] == "#":
                while self._at < len(self._text) and self._text[self._at] not in "\r\n":
                    self._at += 1
            else:
                return

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _expect(self, expected: str, what: str) -> None:
        if not self._take(expected):
            self._fail(f"{what} is expected here")

    def _count(self, num_nodes: int, offset: int) -> None:
        self._size += num_nodes
        if self._size > self._source.limits.max_nfa_states:
            self._fail(f"with its repetitions written out it is over the limit of {self._source.limits.max_nfa_states} characters", offset)
        self._source.check_time()

    def _fail(self, why: str, offset: int | None = None) -> NoReturn:
        raise error_at(self._source, why, self._at if offset is None else offset)


def error_at(source: Source, why: str, offset: int) -> InvalidConstraint:
    """The error to raise, with line and column of a place in the text."""
    line = source.text.count("\n", 0, offset) + 1
    column = offset - source.text.rfind("\n", 0, offset)
    return source.error(f"line {line}, column {column}: {why}", offset)
