r"""Regular expression text to a syntax tree.

The language is that of Python's `re` under `re.fullmatch`, with `\w \d \s` and `(?i)` as under `re.ASCII` until `(?u)` asks for Unicode,
and with `\p{..}` for general categories. Lazy quantifiers are greedy ones here, since only the set of whole texts counts. What cannot be
done exactly is refused by name: look-around, `\b`, back-references, conditionals, possessive quantifiers, atomic groups, inner anchors.
Verbose patterns `(?x)` are refused as well.
"""

from __future__ import annotations

import re
from typing import Final

from ramet.constraint.charset import complement
from ramet.constraint.limits import Source
from ramet.constraint.regex_class import DIGITS, Flags, Reader, check_case, read_class, read_escape, with_case
from ramet.constraint.syntax import EMPTY, Anchor, Chars, Node, Repeat, alt, seq, without_anchors

_PLAIN: Final = re.compile(r"[^\\\[(){*+?.^$|]+")
_COMMENT: Final = re.compile(r"(?:[^\\)]|\\.)*\)", re.DOTALL)  # an escaped bracket does not close it
_NO_NEWLINE: Final = complement(((10, 10),))
_ANY: Final = complement(())
_MAX_COUNT: Final = 2**32 - 1  # from here on `re` refuses
_REFUSED_GROUPS: Final = {
    "?=": "look-ahead is not offered: write out what may follow",
    "?!": "negative look-ahead is not offered: write out what may follow",
    "?<=": "look-behind is not offered: write out what may come before",
    "?<!": "negative look-behind is not offered: write out what may come before",
    "?>": "atomic groups are not offered: use (?:...)",
    "?(": "conditionals on a group are not offered: write both forms out with |",
    "?P=": "back-references are not offered: no finite automaton can follow them",
    "?P>": "recursion is not offered: no finite automaton can follow it",
    "?<": "a named group is written (?P<name>...)",
}


def parse_regex(source: Source) -> Node:
    """The tree of the pattern in `source.text`, free of anchors.

    Raises InvalidConstraint, with the offset, for what is not a pattern, what is not offered, and what nests too deep.
    """
    root = without_anchors(_Parser(source).parse())
    if isinstance(root, Anchor):
        sign = "^" if root.is_start else "$"
        raise source.error(f"{sign} stands inside the pattern: it is offered only where it changes nothing, at the very ends", root.offset)
    return root


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reader = Reader(source)
        self._names: set[str] = set()
        self._depth = 0
        self._chars: dict[Flags, dict[str, Chars]] = {}

    def parse(self) -> Node:
        flags = self._global_flags()
        root = self._alternation(flags)
        if self._reader.peek() == ")":
            raise self._source.error("a ) without its (", self._reader.at)
        return root

    def _global_flags(self) -> Flags:
        reader = self._reader
        flags = Flags()
        kind = ""
        while True:
            start = reader.at
            if self._comment():
                continue
            match = re.compile(r"\(\?([a-zA-Z]+)\)").match(reader.text, start)
            if match is None or set(match[1]) & {"P"}:
                return flags
            kind += "".join(letter for letter in match[1] if letter in "au")
            self._check_flags(match[1], start + 2)
            if len(set(kind)) > 1:
                raise self._source.error("the flags a and u contradict each other", start)
            flags = flags.with_letters(match[1], "")
            reader.at = match.end()

    def _check_flags(self, letters: str, offset: int) -> None:
        for at, letter in enumerate(letters):
            if letter == "x":
                raise self._source.error("verbose patterns (?x) are not offered: write the pattern without spaces", offset + at)
            if letter not in "aimsu":
                raise self._source.error(f"unknown flag {letter!r}", offset + at)
        if "a" in letters and "u" in letters:
            raise self._source.error("the flags a and u contradict each other", offset)

    def _comment(self) -> bool:
        if not self._reader.take("(?#"):
            return False
        inside = _COMMENT.match(self._reader.text, self._reader.at)
        if inside is None:
            raise self._source.error("the comment is not closed: ) is missing", self._reader.at - 3)
        self._reader.at = inside.end()
        return True

    def _alternation(self, flags: Flags) -> Node:
        options = [self._sequence(flags)]
        while self._reader.take("|"):
            options.append(self._sequence(flags))
        return alt(options)

    def _sequence(self, flags: Flags) -> Node:
        reader = self._reader
        parts: list[Node] = []
        chars = self._chars.setdefault(flags, {})
        is_repeatable = False  # whether a quantifier may follow, or why not
        self._source.check_time()
        while True:
            plain = _PLAIN.match(reader.text, reader.at)
            if plain is not None:
                for char in set(plain[0]) - chars.keys():
                    self._literal(char, flags)
                parts += [chars[char] for char in plain[0]]
                reader.at = plain.end()
                is_repeatable = True
            start = reader.at
            char = reader.peek()
            if char in ("", "|", ")"):
                return seq(parts)
            if char in "*+?{":
                counts = self._quantifier()
                if counts is None:
                    parts.append(self._literal("{", flags))
                    is_repeatable = True
                    continue
                if not parts or isinstance(parts[-1], Anchor):
                    raise self._source.error(f"{char} has nothing to repeat", start)
                if not is_repeatable:
                    raise self._source.error("a quantifier behind a quantifier", start)
                self._lazy_mark(start)
                parts[-1] = Repeat(parts[-1], *counts)
                is_repeatable = False
                continue
            if char == "(" and self._comment():
                continue
            parts.append(self._atom(char, flags))
            is_repeatable = True

    def _literal(self, char: str, flags: Flags) -> Chars:
        chars = self._chars.setdefault(flags, {})
        if char not in chars:
            check_case(self._reader, ord(char), ord(char), flags, self._reader.text.find(char, self._reader.at))
            chars[char] = Chars(with_case(((ord(char), ord(char)),), flags))
        return chars[char]

    def _atom(self, char: str, flags: Flags) -> Node:
        reader = self._reader
        start = reader.at
        reader.at += 1
        if char == "(":
            return self._group(flags, start)
        if char == "[":
            return Chars(read_class(reader, flags))
        if char == ".":
            return Chars(_ANY if flags.is_dot_all else _NO_NEWLINE)
        if char in "^$":
            return Anchor(char == "^", start)
        assert char == "\\", f"{char!r} is special and no one reads it"
        if reader.peek() in ("A", "Z"):
            reader.at += 1
            return Anchor(reader.text[reader.at - 1] == "A", start)
        ranges, is_single = read_escape(reader, flags, in_class=False)
        if is_single:
            check_case(reader, ranges[0][0], ranges[0][0], flags, start)
            ranges = with_case(ranges, flags)
        return Chars(ranges)

    def _quantifier(self) -> tuple[int, int | None] | None:
        """The bounds that stand here; None for a brace that is only a brace."""
        reader = self._reader
        start = reader.at
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if reader.take(sign):
                return bounds
        reader.at += 1
        low = reader.take_while(DIGITS, len(reader.text))
        high = reader.take_while(DIGITS, len(reader.text)) if reader.take(",") else low
        has_comma = reader.text[reader.at - 1] == "," or high is not low
        if not reader.take("}") or not (low or has_comma):
            reader.at = start + 1
            return None
        if len(low) > 10 or len(high) > 10 or int(low or 0) >= _MAX_COUNT or int(high or 0) >= _MAX_COUNT:
            raise self._source.error("the repetition number is too large", start)
        if high and int(low or 0) > int(high):
            raise self._source.error("the lower bound of the repetition is above the upper", start)
        return int(low or 0), int(high) if high else None

    def _lazy_mark(self, start: int) -> None:
        if self._reader.peek() == "+":
            raise self._source.error("possessive quantifiers are not offered: leave out the second +", start)
        self._reader.take("?")

    def _group(self, flags: Flags, start: int) -> Node:
        reader = self._reader
        if reader.peek() == "?":
            flags = self._group_head(flags, start)
        self._depth += 1
        if self._depth > self._source.limits.max_nesting:
            raise self._source.error(f"groups nest deeper than {self._source.limits.max_nesting}", start)
        body = self._alternation(flags)
        self._depth -= 1
        if not reader.take(")"):
            raise self._source.error("the group is not closed: ) is missing", start)
        return seq([body, EMPTY]) if isinstance(body, Anchor) else body

    def _group_head(self, flags: Flags, start: int) -> Flags:
        """Read `?...` after the bracket; the flags inside the group."""
        reader = self._reader
        if reader.take("?:"):
            return flags
        if reader.take("?P<"):
            end = reader.text.find(">", reader.at)
            name = reader.text[reader.at : max(end, reader.at)]
            if not name.isidentifier():
                raise self._source.error(f"bad group name {name!r}", reader.at)
            if name in self._names:
                raise self._source.error(f"the group name {name!r} is used twice", reader.at)
            self._names.add(name)
            reader.at = end + 1
            return flags
        for head, why in _REFUSED_GROUPS.items():
            if reader.text.startswith(head, reader.at):
                raise self._source.error(why, start)
        match = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(reader.text, reader.at)
        if match is None:
            raise self._source.error(f"unknown group {reader.peek(2)}", start)
        on, off, close = match.groups()
        self._check_flags(on + (off or ""), start + 2)
        if close == ")":
            raise self._source.error("flags for the whole pattern stand at its very start; use (?i:...) for a part", start)
        if off is not None and (not off or set(off) & set("au") or set(on) & set(off)):
            raise self._source.error("only i, m and s can be switched off, and not on at the same time", start)
        reader.at = match.end()
        return flags.with_letters(on, off or "")
