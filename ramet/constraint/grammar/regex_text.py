"""Regular parts of a grammar as patterns of llguidance's lexer."""

from __future__ import annotations

from ramet.constraint.charset import Ranges
from ramet.constraint.grammar.rules import Char, Choice, Expr, Row, Times, Word


def regex_text(expr: Expr) -> str:
    """A regular part as a pattern of llguidance's lexer."""
    if isinstance(expr, Char):
        return _set(expr.ranges)
    if isinstance(expr, Word):
        return literal_regex(expr.text)
    if isinstance(expr, Row):
        return "".join(map(regex_text, expr.parts))
    if isinstance(expr, Choice):
        return "(?:" + "|".join(map(regex_text, expr.options)) + ")"
    assert isinstance(expr, Times), f"{type(expr).__name__} in a regular part"
    return f"(?:{regex_text(expr.body)}){counts_text(expr.min_count, expr.max_count)}" if expr.max_count != 0 else ""


def literal_regex(text: str) -> str:
    """A pattern that matches this text only."""
    return "".join(_point(ord(char)) for char in text)


def counts_text(min_count: int, max_count: int | None) -> str:
    """How often something is repeated, as both patterns and rules write it."""
    for counts, sign in (((0, None), "*"), ((1, None), "+"), ((0, 1), "?")):
        if counts == (min_count, max_count):
            return sign
    return f"{{{min_count},{'' if max_count is None else max_count}}}"


def _set(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _point(ranges[0][0])
    return "[" + "".join(_point(low) if low == high else f"{_point(low)}-{_point(high)}" for low, high in ranges) + "]"


def _point(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\x{{{point:X}}}"
