r"""How characters and values are written in JSON.

A free string may use every escape of RFC 8259. Where the value of a string counts (a pattern, a format, an enum, a key) each character
has one spelling: as it is, or, where JSON asks for it, `\" \\ \b \f \n \r \t` or `\u00xx` in small letters, as `json.dumps` writes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from ramet.constraint.charset import SCALARS, Ranges, complement, intersect, union
from ramet.constraint.schema.read import Value
from ramet.constraint.schema.trees import choose, join, maybe, repeat
from ramet.constraint.syntax import EMPTY, Alt, Chars, Node, Repeat, Seq, alt, literal, seq

_ESCAPED: Final[Ranges] = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
RAW: Final[Ranges] = intersect(SCALARS, complement(_ESCAPED))
QUOTE: Final = literal('"')
_HEX: Final = Chars(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))


def _among(letters: str) -> Node:
    return Chars(union((ord(letter), ord(letter)) for letter in letters))


# Behind \u: a character of the basic plane, or a high surrogate and then a low one.
_BASIC: Final = alt([seq([_among("0123456789abcefABCEF"), _HEX, _HEX, _HEX]), seq([_among("dD"), _among("01234567"), _HEX, _HEX])])
_HIGH: Final = seq([_among("dD"), _among("89abAB"), _HEX, _HEX])
_LOW: Final = seq([_among("dD"), _among("cdefCDEF"), _HEX, _HEX])
_UNICODE: Final = seq([literal("u"), alt([_BASIC, seq([_HIGH, literal("\\u"), _LOW])])])
FREE_CHAR: Final = alt(
    [Chars(RAW), seq([literal("\\"), alt([_among('"\\/bfnrt'), _UNICODE])])]
)  # one character of a value, however written


@lru_cache(maxsize=1024)
def spelled_chars(ranges: Ranges) -> Node:
    """The spelling of one character of a set."""
    options: list[Node] = []
    raw = intersect(ranges, RAW)
    if raw:
        options.append(Chars(raw))
    options += (literal(json.dumps(chr(code))[1:-1]) for low, high in intersect(ranges, _ESCAPED) for code in range(low, high + 1))
    return choose(options)


def spelled(node: Node) -> Node:
    """The spelling of the strings of a tree, without the quotes."""
    known: dict[int, Node] = {}

    def walk(node: Node) -> Node:
        if id(node) not in known:
            if isinstance(node, Chars):
                known[id(node)] = spelled_chars(node.ranges)
            elif isinstance(node, Seq):
                known[id(node)] = join(*map(walk, node.parts))
            elif isinstance(node, Alt):
                known[id(node)] = choose(map(walk, node.options))
            else:
                assert isinstance(node, Repeat), "anchors are gone before strings are spelled"
                known[id(node)] = repeat(walk(node.body), node.min_count, node.max_count)
        return known[id(node)]

    return walk(node)


@lru_cache(maxsize=4096)
def _char(char: str) -> Node:
    return Chars(((ord(char), ord(char)),))


def spelled_text(text: str) -> Node:
    """The spelling of one string, with its quotes."""
    return seq(map(_char, json.dumps(text, ensure_ascii=False)))


def spelled_number(value: int | Decimal) -> str:
    """The spelling of a number: as `json.dumps` writes the int or the float."""
    return json.dumps(value if isinstance(value, int) else float(value))


@dataclass(frozen=True, slots=True)
class Style:
    """What stands between the parts of arrays and objects."""

    comma: Node
    colon: Node
    pad: Node  # inside a bracket that is not empty, and in one that is

    def array(self, body: Node, may_be_empty: bool) -> Node:
        """An array around items; an empty one where it may be."""
        return self._bracket("[", "]", body, may_be_empty)

    def object(self, body: Node, may_be_empty: bool) -> Node:
        """An object around members; an empty one where it may be."""
        return self._bracket("{", "}", body, may_be_empty)

    def _bracket(self, start: str, end: str, body: Node, may_be_empty: bool) -> Node:
        if body is EMPTY:
            return join(literal(start), self.pad, literal(end))
        inside = join(body, self.pad)
        return join(literal(start), self.pad, maybe(inside) if may_be_empty else inside, literal(end))

    def value(self, value: Value) -> Node:
        """The spelling of one value; the keys of objects in their order."""
        if isinstance(value, str):
            return spelled_text(value)
        if value is None or isinstance(value, bool):
            return literal(json.dumps(value))
        if isinstance(value, int | Decimal):
            return literal(spelled_number(value))
        if isinstance(value, list):
            return self.array(self.listed([self.value(item) for item in value]), not value)
        members = [join(spelled_text(key), self.colon, self.value(item)) for key, item in value.items()]
        return self.object(self.listed(members), not value)

    def listed(self, parts: list[Node]) -> Node:
        """The parts with commas between them."""
        return join(*parts[:1], *(join(self.comma, part) for part in parts[1:]))


def style_of(kind: str) -> Style:
    """The style of a kind of constraint: fixed separators, compact ones, or up to 8 characters of white space at every gap."""
    if kind == "json_schema_flexible":
        pad = Repeat(Chars(((9, 10), (13, 13), (32, 32))), 0, 8)
        return Style(seq([pad, literal(","), pad]), seq([pad, literal(":"), pad]), pad)
    comma, colon = (",", ":") if kind == "json_schema_compact" else (", ", ": ")
    return Style(literal(comma), literal(colon), EMPTY)
