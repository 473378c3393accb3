"""The texts of a vocabulary in the form llguidance wants, made once for each.

llguidance marks special tokens with the byte ff, which is in no UTF-8 text, so tokens that hold one are left without bytes. It gets one id
that ends a text, behind all others; the vocabulary's own are set where the text may end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import llguidance
import numpy as np

from ramet.constraint.vocabulary import Vocabulary

_MARKER: Final = 0xFF


class GrammarTokens:
    """One vocabulary for llguidance. Immutable; any thread may use it.

    `words` is a tokenizer whose ids are those of the vocabulary; `letters` has a token for each byte, to walk along texts. `is_text`, bool
    [width], says which ids are ever text.
    """

    def __init__(self, vocabulary: Vocabulary, letters: llguidance.LLTokenizer) -> None:
        pieces = [b"" if _MARKER in piece else piece for piece in vocabulary.pieces]
        pieces += [b""] * (vocabulary.width - len(pieces))
        self.is_text = np.array([bool(piece) for piece in pieces], np.bool_)
        self.words = _tokenizer(pieces)
        self.letters = letters


def _tokenizer(pieces: Sequence[bytes]) -> llguidance.LLTokenizer:
    end_id = len(pieces)
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Pieces(pieces, end_id)), n_vocab=end_id + 1, eos_token=end_id)


class _Pieces:
    """What llguidance reads of a tokenizer. It is never asked for tokens of forced text: masks and forced bytes do without."""

    def __init__(self, pieces: Sequence[bytes], end_id: int) -> None:
        self.tokens = [*pieces, b""]
        self.eos_token_id = end_id
        self.bos_token_id = None
        self.special_token_ids: list[int] = []
        self._longest_first = {piece: token_id for token_id, piece in enumerate(pieces) if piece}
        self._max_piece_len = max(map(len, self._longest_first), default=1)

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        ids = []
        at = 0
        while at < len(data):
            for length in range(min(self._max_piece_len, len(data) - at), 0, -1):
                token_id = self._longest_first.get(data[at : at + length])
                if token_id is not None:
                    ids.append(token_id)
                    at += length - 1
                    break
            at += 1
        return ids


class _Kept:
    """The tokens of the vocabularies in use, and those that all share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: llguidance.LLTokenizer | None = None
        self._of_vocabulary: WeakKeyDictionary[Vocabulary, GrammarTokens] = WeakKeyDictionary()

    def get(self, vocabulary: Vocabulary) -> GrammarTokens:
        """The vocabulary for llguidance; callers wait for one another."""
        with self._lock:
            tokens = self._of_vocabulary.get(vocabulary)
            if tokens is None:
                if self._letters is None:
                    self._letters = _tokenizer([bytes([byte]) if byte != _MARKER else b"" for byte in range(256)])
                tokens = self._of_vocabulary[vocabulary] = GrammarTokens(vocabulary, self._letters)
            return tokens


_KEPT: Final = _Kept()


def tokens_of(vocabulary: Vocabulary) -> GrammarTokens:
    """The vocabulary for llguidance, made at the first call (0.2 s for 50,000 tokens) and kept as long as the vocabulary lives."""
    return _KEPT.get(vocabulary)
