r"""An ECMA 262 pattern, as JSON Schema has them, in the spelling that `constraint.regex` reads.

Where the two disagree the meaning is ECMA's with the flag u: `.` is no end of line, `\s` knows Unicode's blanks, `(?<name>...)` is a group.
Anchors come out as groups that no pattern can hold otherwise, because they are looked at afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ramet.constraint.charset import Ranges, complement, union
from ramet.constraint.limits import Source

START_MARK: Final = "\ufdd0"  # twice in a group: the start of the text; U+FDD0 and U+FDD1 are no characters, by definition
END_MARK: Final = "\ufdd1"
_START: Final = f"(?:{START_MARK}{START_MARK})"
_END: Final = f"(?:{END_MARK}{END_MARK})"
_SPACES: Final[Ranges] = union(
    [(9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F)]
    + [(0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)
_CATEGORIES: Final[Mapping[str, str]] = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Punctuation": "P",
    "punct": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Other": "C",
}
_COPIED_GROUP: Final = re.compile(r"\(\?(?:[:=!]|<[=!]|-?i:|i\)|P<)")
_PAIR: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNIT: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_BRACED: Final = re.compile(r"\\u\{([0-9a-fA-F]{1,8})\}")
_PROPERTY: Final = re.compile(r"\\([pP])\{(?:(?:gc|General_Category)=)?(\w+)\}")


def to_python(source: Source) -> str:
    """The pattern in `source.text`, rewritten. Raises InvalidConstraint, with the offset, for what cannot be."""
    return _Rewriter(source).rewrite()


def top_level_bars(pattern: str) -> bool:
    """Whether the pattern is an alternation outside of every group."""
    return any(char == "|" and depth == 0 for char, depth in _skeleton(pattern))


def group_end(pattern: str, start: int) -> int | None:
    """The offset behind the group that opens at `start`, None when it does not close."""
    at = start
    for char, depth in _skeleton(pattern[start:]):
        at += len(char)
        if char == ")" and depth == 0:
            return at
    return None


def _skeleton(pattern: str) -> list[tuple[str, int]]:
    """The pieces of a pattern (escapes and classes whole) with the number of groups around each; a closing bracket counts as outside."""
    found = []
    depth = 0
    for match in re.finditer(r"\\.|\[\^?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        depth -= match[0] == ")"
        found.append((match[0], depth))
        depth += match[0] == "("
    return found


def _spelled(ranges: Ranges) -> str:
    return "".join(f"\\U{low:08x}" + (f"-\\U{high:08x}" if high > low else "") for low, high in ranges)


class _Rewriter:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._out: list[str] = []

    def rewrite(self) -> str:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._escape(in_class=False)
            elif char == "[":
                self._class()
            elif char == "(":
                self._group()
            elif char in "^$":
                self._anchor(_START if char == "^" else _END, 1)
            elif char == ".":
                self._put("[^\\n\\r\\u2028\\u2029]", 1)
            elif char == "{" and re.compile(r"\{,\d*\}").match(self._text, self._at):
                raise self._error("a repetition without its lower bound: write {0,n}")
            elif char in (START_MARK, END_MARK):
                raise self._error("U+FDD0 and U+FDD1 are no characters")
            else:
                self._put(char, 1)
        return "".join(self._out)

    def _put(self, text: str, length: int) -> None:
        self._out.append(text)
        self._at += length

    def _error(self, why: str) -> Exception:
        return self._source.error(why, self._at)

    def _anchor(self, mark: str, length: int) -> None:
        if self._text[self._at + length : self._at + length + 1] in tuple("*+?{"):
            raise self._error("an anchor cannot be repeated")
        self._put(mark, length)

    def _group(self) -> None:
        text, at = self._text, self._at
        if not text.startswith("(?", at):
            self._put("(", 1)
        elif _COPIED_GROUP.match(text, at):
            self._put("(?", 2)
        elif text.startswith("(?<", at):
            self._put("(?P<", 3)
        else:
            raise self._error(f"{text[at : at + 4]} is no group of an ECMA pattern")

    def _class(self) -> None:
        if self._text.startswith("[^]", self._at):
            self._put("(?s:.)", 3)
            return
        if self._text.startswith("[]", self._at):
            raise self._error("[] matches nothing: put the ] behind a backslash")
        self._put("[", 1)
        if self._text.startswith("^", self._at):
            self._put("^", 1)
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._escape(in_class=True)
                continue
            self._put("\\" + char if char == "[" else char, 1)
            if char == "]":
                return
        raise self._error("the class is not closed: ] is missing")

    def _escape(self, in_class: bool) -> None:
        text, at = self._text, self._at
        char = text[at + 1 : at + 2]
        if char in ("s", "S"):
            members = _spelled(_SPACES if char == "s" else complement(_SPACES))
            self._put(members if in_class else f"[{members}]", 2)
        elif char in ("A", "Z") and not in_class:
            self._anchor(_START if char == "A" else _END, 2)
        elif char == "u":
            self._code_point()
        elif char == "c":
            letter = text[at + 2 : at + 3]
            if not (letter.isascii() and letter.isalpha()):
                raise self._error("\\c needs a letter")
            self._put(f"\\x{ord(letter) % 32:02x}", 3)
        elif char in ("p", "P"):
            match = _PROPERTY.match(text, at)
            if match is None:
                raise self._error(f"\\{char} takes a general category in braces, such as \\p{{L}}")
            self._put(f"\\{match[1]}{{{_CATEGORIES.get(match[2], match[2])}}}", len(match[0]))
        elif char == "k":
            raise self._error("back-references are not offered: no finite automaton can follow them")
        else:
            self._put(text[at : at + 2], 2)

    def _code_point(self) -> None:
        pair, braced, unit = (kind.match(self._text, self._at) for kind in (_PAIR, _BRACED, _UNIT))
        if pair is not None:
            code = 0x10000 + ((int(pair[1], 16) & 0x3FF) << 10) + (int(pair[2], 16) & 0x3FF)
            self._put(f"\\U{code:08x}", len(pair[0]))
        elif braced is not None:
            self._put(f"\\U{int(braced[1], 16):08x}", len(braced[0]))
        elif unit is not None:
            if 0xD800 <= int(unit[1], 16) <= 0xDFFF:
                raise self._error("half of a surrogate pair is no character")
            self._put(unit[0], len(unit[0]))
        else:
            raise self._error("\\u needs 4 hexadecimal digits, or more in braces")
