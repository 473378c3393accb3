"""Canonical tokens: those that the tokenizer itself would have written for the same text.

A mask allows every token that fits, `wi|zard` as well as `wizard`, but a model has been trained on the second only: what it gives to the
first says little (the distortion of the paper's B.3). A byte-pair encoding is canonical when each pair of neighbours is, so one look at a
token and what stands before it tells.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ramet.constraint.base import Matcher
from ramet.constraint.jump import ByteRanges, Jumper
from ramet.constraint.vocabulary import Vocabulary
from ramet.tokenizer.continuation import Continuation, UnknownContext

_LEFT_LEN: Final = 3
_MAX_KEPT: Final = 65536
_MAX_BRANCHES: Final = 16  # next bytes that are looked at one by one; among more of them, a token stands before some
_RUN_LEN: Final = 16


class Canonical:
    """Judges tokens of one vocabulary; remembers its verdicts. Safe for use from several threads."""

    def __init__(self, vocabulary: Vocabulary, continuation: Continuation, jumper: Jumper) -> None:
        self._vocabulary = vocabulary
        self._continuation = continuation
        self._jumper = jumper
        self._known: OrderedDict[tuple[tuple[int, ...], int, bytes, tuple[tuple[int, int], ...]], bool] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, left_ids: Sequence[int], matcher: Matcher, token_id: int) -> bool:
        """Whether a token, which the matcher allows, can stand behind `left_ids` in the encoding of a text that matches.

        What may follow counts as well: a token that must grow into a longer one with all that is allowed behind it cannot stand. Where the
        tokens before are not canonical themselves, nothing is held against the token. Leaves the matcher where it is.
        """
        if not self._vocabulary.piece(token_id):
            return True  # an id that ends the text
        matcher.accept(token_id)
        try:
            forced, following = self._jumper.forced(matcher)
            if forced:
                return self._stands(left_ids, token_id, forced, following)
            if not self._stands(left_ids, token_id, b"", []):
                return False
            starts = [byte for low, high in matcher.bytes_behind(b"")[:_MAX_BRANCHES] for byte in range(low, high + 1)]
            if matcher.is_final or len(starts) > _MAX_BRANCHES or any(byte >= 0x80 for byte in starts):
                return True
            # Seldom more than a glance: most tokens stand before some of the next bytes alone.
            return any(self._stands(left_ids, token_id, bytes((byte,)), []) for byte in starts) or any(
                self._stands(left_ids, token_id, *_run(matcher, byte)) for byte in starts
            )
        finally:
            matcher.rollback(1)

    def num_noncanonical(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> int:
        """How many tokens of an output are not those that its text is encoded to behind the prompt."""
        pieces = [self._vocabulary.piece(token_id) for token_id in output_ids]
        data = b"".join(pieces)
        text = data.decode(errors="ignore").encode()
        whole_len = len(text) if data.startswith(text) else 0  # an output may be cut inside a character
        try:
            ids = self._continuation.encode(prompt_ids, data[:whole_len])
        except UnknownContext:
            ids = None
        if ids is None:
            ids = self._continuation.encode_alone(data[:whole_len]) or []
        canonical = set(_places(ids, [self._vocabulary.piece(token_id) for token_id in ids]))
        mine = [place for place, piece in zip(_places(output_ids, pieces), pieces, strict=True) if piece]
        return sum(place not in canonical for place in mine if place[0] + len(self._vocabulary.piece(place[1])) <= whole_len)

    def _stands(self, left_ids: Sequence[int], token_id: int, forced: bytes, following: ByteRanges) -> bool:
        """Whether the encoding of the token's text, `forced`, and anything that may follow begins with the token."""
        key = (tuple(left_ids[-_LEFT_LEN:]), token_id, forced, tuple(following))
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = self._judge(left_ids, token_id, forced, following)
            with self._lock:
                self._known[key] = known
                if len(self._known) > _MAX_KEPT:
                    self._known.popitem(last=False)
        return known

    def _judge(self, left_ids: Sequence[int], token_id: int, forced: bytes, following: ByteRanges) -> bool:
        piece = self._vocabulary.piece(token_id)
        data = piece + forced
        places = [len(data)]
        if forced:
            places += [at for at in self._jumper.borders(data, following) if at > len(piece)]
        for place in places:
            try:
                ids = self._continuation.encode(left_ids, data[:place])
            except UnknownContext:
                return True
            if ids is not None and ids[:1] == [token_id]:
                return True
        return False


def _run(matcher: Matcher, byte: int) -> tuple[bytes, ByteRanges]:
    """A byte that may come next and what is forced behind it, up to _RUN_LEN bytes; and what may follow those."""
    data = bytes((byte,))
    following = matcher.bytes_behind(data)
    while len(data) < _RUN_LEN and len(following) == 1 and following[0][0] == following[0][1] < 0x80:
        data += bytes((following[0][0],))
        following = matcher.bytes_behind(data)
    return data, following


def _places(ids: Sequence[int], pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where each token starts, and the token."""
    places: list[tuple[int, int]] = []
    start = 0
    for token_id, piece in zip(ids, pieces, strict=True):
        places.append((start, token_id))
        start += len(piece)
    return places
