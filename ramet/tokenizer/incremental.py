"""Text of a growing sequence of ids, piece by piece, never a piece of a character.

    ids ──> bytes of each token ──> incremental UTF-8 decoder ──> text
                                    holds back at most 3 bytes

A token costs its own bytes: nothing is decoded twice and there is no window of earlier tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from ramet.tokenizer.token_bytes import TokenBytes

_UTF8_MAX_LEN = 4  # bytes of the longest character


class HasBytesTable(Protocol):
    """What a detokeniser needs of a tokenizer."""

    @property
    def bytes_table(self) -> TokenBytes:
        """The bytes of every token."""


class IncrementalDetokenizer:
    """The text of what follows a prompt, as it grows.

    `prompt_ids` are the ids before the first pushed one; none of their text is given back. They decide two things: with a SentencePiece
    vocabulary the space at the very start of the whole text is dropped, and at the start of an output that follows visible text it is kept;
    and when they end inside a character that the output completes, that character belongs to the output (when the output does not complete
    it, its bytes are dropped: they are the prompt's).

    The joined pieces of `push` and `flush` do not depend on how the ids were cut into pushes. Where the bytes are valid UTF-8, they are the
    text of the whole sequence after that of the prompt. Bytes that are not become U+FFFD, one for each maximal invalid part; a character
    that is still incomplete at `flush` becomes one U+FFFD. Ids outside the vocabulary (padded rows of the head) have no text.
    """

    def __init__(
        self,
        tokenizer: HasBytesTable,
        *,
        prompt_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        table = tokenizer.bytes_table
        self._pieces = table.pieces
        self._special_ids = table.special_ids
        self._skip_special = skip_special_tokens
        self._space_specials = spaces_between_special_tokens and not skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tail = self._visible_tail(prompt_ids)
        self._decoder.decode(tail)
        self._prompt_pending = self._decoder.getstate()[0]  # the bytes of a character that the prompt began
        self._strip_space = table.strips_leading_space and not tail
        self._is_flushed = False

    def push(self, token_ids: Sequence[int]) -> str:
        """The new text that these ids bring; empty while a character is incomplete."""
        assert not self._is_flushed, "push after flush"
        data = b"".join(map(self._bytes_of, token_ids))
        return self._text(data, is_final=False) if data else ""

    def push_bytes(self, data: bytes) -> str:
        """The new text of bytes that no token of their own spells."""
        assert not self._is_flushed, "push after flush"
        return self._text(data, is_final=False) if data else ""

    def flush(self) -> str:
        """What is left at the end: nothing, or one U+FFFD for a character that the last ids left incomplete."""
        assert not self._is_flushed, "flush twice"
        self._is_flushed = True
        return "" if self._prompt_pending else self._text(b"", is_final=True)

    def _text(self, data: bytes, is_final: bool) -> str:
        if self._prompt_pending:  # the first byte of the output decides whose character it is
            if not _can_follow(self._prompt_pending, data[:1]):
                self._decoder.reset()
            self._prompt_pending = b""
        text = self._decoder.decode(data, is_final)
        if text and self._strip_space:
            self._strip_space = False
            text = text.removeprefix(" ")
        return text

    def _bytes_of(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._pieces):
            return b""
        if token_id not in self._special_ids:
            self._is_after_special = False
            return self._pieces[token_id]
        if self._skip_special:
            return b""
        needs_space = self._space_specials and self._is_after_special
        self._is_after_special = True
        return b" " + self._pieces[token_id] if needs_space else self._pieces[token_id]

    def _visible_tail(self, prompt_ids: Sequence[int]) -> bytes:
        """The last bytes of the prompt's text, enough to know how it ends; empty when it has none.

        Sets whether it ends with a special token. Reads from the end, so a long prompt costs a few tokens.
        """
        num_bytes = 0
        start = len(prompt_ids)
        self._is_after_special = False
        while start > 0 and num_bytes < _UTF8_MAX_LEN:
            start -= 1
            token_id = prompt_ids[start]
            if 0 <= token_id < len(self._pieces) and not (self._skip_special and token_id in self._special_ids):
                num_bytes += len(self._pieces[token_id])
        return b"".join(map(self._bytes_of, prompt_ids[start:]))


def _can_follow(pending: bytes, byte: bytes) -> bool:
    """Whether a byte goes on with the character that the pending bytes began."""
    try:
        (pending + byte).decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
