"""Where a growing text meets a stop string or a stop pattern, and which end of it may still become one.

The text ends at the *earliest completion*: the shortest prefix of the text, counted in characters, in which a stop string or
pattern is found. Among those found in that prefix the one that starts first wins (so of two strings that end together, the
longer), and a string before a pattern. The rule speaks of characters only, so the result does not depend on how the text was
cut into tokens, nor on how many arrive at once; of one string that occurs repeatedly it is the leftmost.

A pattern sees the text so far: `$` is the end of that prefix, and a look-ahead cannot wait for what is not there yet. A pattern
that matches the empty string matches at the first character. Patterns look back over a window: what one match spans must fit
4096 characters, or less where the pattern itself cannot be longer. `re` cannot say whether a text is the beginning of a match,
so with a pattern as much text as its window minus one is held back until the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from ramet.errors import StopPatternTooSlow

MAX_LOOK_BACK = 4096  # characters
MAX_SEARCH_S = 0.5  # of one search; `re` cannot be interrupted, `regex` can, and lets other threads run meanwhile

_LOOKS_AROUND = re.compile(r"\$|\\[ZbB]|\(\?[=!>(]|[*+?}]\+")


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A stop found: `text[start:end]` matched, and the text was complete for it at `seen_len` characters (>= end)."""

    start: int
    end: int
    seen_len: int
    matched: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    compiled: regex.Pattern[str]
    look_back: int  # characters a match may span
    is_stable: bool  # a match in a prefix is a match in the longer text too: one search can rule out all prefixes


class TextStops:
    """The stop strings and patterns of one request, ready to be searched; holds no text."""

    def __init__(self, strings: Sequence[str], patterns: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._patterns = tuple(_Pattern(regex.compile(p), look_back(p), not _LOOKS_AROUND.search(p)) for p in patterns)

    def find(self, text: str, searched_len: int, passed_len: int = 0) -> TextMatch | None:
        """The earliest completion after the first `searched_len` characters, which were searched before or are passed text.

        `passed_len` characters at the beginning came when nothing could stop: a match that lies in them does not count.
        """
        best: TextMatch | None = None
        for string in self._strings:
            start = text.find(string, max(0, searched_len - len(string) + 1))
            if start >= 0:
                end = start + len(string)
                best = _earlier(best, TextMatch(start, end, end, string))
        for pattern in self._patterns:
            found = _first_prefix(pattern, text, searched_len, passed_len, len(text) if best is None else best.seen_len)
            if found is not None:
                best = _earlier(best, found)
        return best

    def held_len(self, text: str) -> int:
        """How many characters at the end of a text without a match may yet belong to one."""
        held = max((pattern.look_back - 1 for pattern in self._patterns), default=0)
        for string in self._strings:
            begin = max(0, len(text) - len(string) + 1)
            while (begin := text.find(string[0], begin)) >= 0:
                if string.startswith(text[begin:]):
                    held = max(held, len(text) - begin)
                    break
                begin += 1
        return min(held, len(text))


def look_back(pattern: str) -> int:
    """How many characters one match of a pattern can depend on: MAX_LOOK_BACK where that has no bound, else an upper bound.

    Each character of the text needs at least one of the pattern, times the counted repetitions around it; two more for `$`,
    which looks at a newline before the end. Literal `*`, `+` and braces are taken for operators only inside brackets, where
    the bound is merely larger than it need be.
    """
    bare = re.sub(r"\\[^0-9]", "x", pattern, flags=re.DOTALL)
    if re.search(r"[*+\\]|\(\?P=|\{\d*,\}", bare):
        return MAX_LOOK_BACK
    bound = len(pattern) + 2
    for low, high in re.findall(r"\{(\d*)(?:,(\d*))?\}", bare):
        bound *= max(1, int(high or low or 0))
    return min(bound, MAX_LOOK_BACK)


def _earlier(one: TextMatch | None, other: TextMatch) -> TextMatch:
    return other if one is None or (other.seen_len, other.start) < (one.seen_len, one.start) else one


def _first_prefix(pattern: _Pattern, text: str, searched_len: int, passed_len: int, limit_len: int) -> TextMatch | None:
    if pattern.is_stable and _search(pattern, text, passed_len, searched_len + 1, limit_len) is None:
        return None
    for seen_len in range(searched_len + 1, limit_len + 1):
        match = _search(pattern, text, passed_len, seen_len, seen_len)
        if match is not None:
            return TextMatch(match.start(), match.end(), seen_len, match.group())
    return None


def _search(pattern: _Pattern, text: str, passed_len: int, window_end: int, text_end: int) -> regex.Match[str] | None:
    """The leftmost match in text[:text_end] that starts in the window of `window_end` and does not lie in the passed text."""
    begin = max(0, window_end - pattern.look_back)
    while (match := _timed(pattern, text, begin, text_end)) is not None:
        # What is found within the passed text was found before it was passed, and did not count then.
        if match.end() > passed_len or match.start() >= passed_len:
            return match
        begin = match.start() + 1
    return None


def _timed(pattern: _Pattern, text: str, begin: int, end: int) -> regex.Match[str] | None:
    try:
        return pattern.compiled.search(text, begin, end, concurrent=True, timeout=MAX_SEARCH_S)
    except TimeoutError as error:
        raise StopPatternTooSlow(pattern.compiled.pattern, MAX_SEARCH_S) from error
