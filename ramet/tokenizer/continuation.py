"""The tokens that a text gets behind other tokens, under the tokenizer's own rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from ramet.tokenizer.tokenizer import Tokenizer

_WINDOW_LENS: Final = (3, 12, 48)  # tokens of context to try: what is near decides, but a cut through a word may mislead


class UnknownContext(Exception):
    """The tokens before do not come back when their text is encoded, so nothing can be said about what follows them."""


class Continuation:
    """Encodes bytes as a continuation; a tokenizer cuts a text differently when it stands behind another one.

    Safe for use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces = tokenizer.bytes_table.pieces
        self._special_ids = tokenizer.special_ids
        self._adds_space = tokenizer.bytes_table.strips_leading_space

    def encode(self, left_ids: Sequence[int], data: bytes) -> list[int] | None:
        """The ids of `data` behind `left_ids` (the end of the text suffices) when the whole is encoded at once.

        None when a token would span the border. Raises UnknownContext when the border cannot be judged: the context is not what its text
        encodes to, or text or context is no whole number of characters.
        """
        for window_len in _WINDOW_LENS:
            window = self._window(left_ids, window_len)
            left = b"".join(map(self._piece, window))
            cut = self._cut(left, data)
            if cut is not None:
                ids, starts, border = cut
                if border in starts:
                    at = starts.index(border)
                    if not window or ids[at - 1] == window[-1]:
                        return ids[at:]
                elif self._is_own_spelling(left, window):
                    return None
            if len(window) < window_len:
                break
        raise UnknownContext(f"the tokens {list(left_ids[-4:])} and {data!r} behind them are not what their text encodes to")

    def encode_alone(self, data: bytes) -> list[int] | None:
        """The ids of `data` behind a border that is given, as if a line began there; None when they do not spell it exactly."""
        cut = self._cut(b"\n", data)
        if cut is None:
            return None
        ids, starts, border = cut
        return ids[starts.index(border) :] if border in starts else None

    def _is_own_spelling(self, left: bytes, window: Sequence[int]) -> bool:
        cut = self._cut(left, b"")
        return cut is not None and cut[0][-1:] == list(window[-1:])

    def _piece(self, token_id: int) -> bytes:
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""

    def _window(self, left_ids: Sequence[int], length: int) -> list[int]:
        """The last tokens of text, from the beginning of a character on; special tokens end it."""
        start = len(left_ids)
        least = max(0, start - length)
        while start > least or (0 < start < len(left_ids) and self._starts_inside(left_ids[start])):
            if left_ids[start - 1] in self._special_ids:
                break
            start -= 1
        return [int(i) for i in left_ids[start:]]

    def _starts_inside(self, token_id: int) -> bool:
        return 0x80 <= (self._piece(token_id)[:1] or b"\0")[0] < 0xC0

    def _cut(self, left: bytes, data: bytes) -> tuple[list[int], list[int], int] | None:
        """The ids of left + data, where each starts (and the last ends), and where `left` ends; None when they do not spell the text."""
        try:
            text = (left + data).decode()
        except UnicodeDecodeError:
            return None
        ids = self._tokenizer.encode(text, add_special_tokens=False) if text else []
        if not self._special_ids.isdisjoint(ids):
            return None
        starts = [0, *itertools.accumulate(len(self._piece(token_id)) for token_id in ids)]
        num_added = starts[-1] - len(left) - len(data)
        if num_added == 0:
            return ids, starts, len(left)
        # A SentencePiece vocabulary writes a space before a text's first word; it is part of the context or of nothing.
        return (ids, starts, len(left) + 1) if num_added == 1 and self._adds_space and left else None
