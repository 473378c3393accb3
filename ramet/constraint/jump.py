"""Jump-forward: from bytes that must come to the tokens that spell them, without rewriting what is there ("heal").

    forced bytes F of a state   {"name": "        what may follow them: a letter, a digit, a space
    encode(left + F)            {"|name|":|Ġ"     but `Ġ"H` is a token too, and begins inside F
    kept                        {"|name|":        the rest, ` "`, stays a constraint of the next token

Byte-pair encodings are closed under prefixes: the tokens of a text up to a border are the tokens of the text before that border. So
whatever follows F, its encoding has a border at the end of F, or one where a token starts that begins inside F and goes beyond it. What
the encodings of F up to each of these places agree on comes in any case; that much is safe to write now. (design: the paper, B.2, solves
the same problem by encoding everything again after each jump and rolling back.)
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from ramet.constraint.base import Matcher
from ramet.constraint.vocabulary import Vocabulary
from ramet.tokenizer.continuation import Continuation, UnknownContext

MAX_JUMP_BYTES: Final = 512  # of one jump: bounds what a step of the engine may spend on it; the next step jumps on
_LEFT_LEN: Final = 8  # tokens before a jump that decide its tokens
_MAX_KEPT: Final = 16384

ByteRanges = list[tuple[int, int]]


def num_shared(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two sequences have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


class Jumper:
    """Finds the tokens of forced bytes for one vocabulary; remembers what it found. Safe for use from several threads."""

    def __init__(self, vocabulary: Vocabulary, continuation: Continuation) -> None:
        self._continuation = continuation
        self._pieces = vocabulary.pieces
        self._sorted_pieces = sorted({piece for piece in vocabulary.pieces if piece})
        self._max_piece_len = max(map(len, self._sorted_pieces), default=0)
        self._known: OrderedDict[tuple[tuple[int, ...], bytes, tuple[tuple[int, int], ...]], tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def heal(self, left_ids: Sequence[int], matcher: Matcher) -> tuple[int, ...]:
        """The ids to write now behind `left_ids`, whose text the matcher has followed: a beginning of its forced bytes, or nothing.

        Changes nothing.
        """
        forced, following = self.forced(matcher)
        if not forced:
            return ()
        key = (tuple(left_ids[-_LEFT_LEN:]), forced, tuple(following))
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = tuple(self._settled(left_ids, forced, following))
        with self._lock:
            self._known[key] = found
            if len(self._known) > _MAX_KEPT:
                self._known.popitem(last=False)
        return found

    def retokenize(self, prompt_ids: Sequence[int], output_ids: Sequence[int], matcher: Matcher) -> tuple[int, tuple[int, ...]]:
        """The paper's B.2: all output and the forced bytes behind it, encoded anew.

        Gives how many of `output_ids` stay and the ids that follow those, none when there is nothing to jump over. Changes nothing.
        """
        forced, _ = self.forced(matcher)
        if not forced:
            return len(output_ids), ()
        data = b"".join(self._pieces[token_id] for token_id in output_ids) + forced
        try:
            whole = self._continuation.encode(prompt_ids, data)
        except UnknownContext:
            whole = None
        if whole is None:
            return len(output_ids), ()
        num_kept = num_shared(output_ids, whole)
        return num_kept, tuple(whole[num_kept:])

    def forced(self, matcher: Matcher) -> tuple[bytes, ByteRanges]:
        """The whole characters among the next forced bytes, at most MAX_JUMP_BYTES, and the ranges of what may follow them."""
        forced = matcher.forced_bytes(MAX_JUMP_BYTES)
        if not forced:
            return b"", []
        text = forced.decode(errors="ignore").encode()  # forced bytes may end inside a character, or begin inside one
        if not forced.startswith(text):
            return b"", []
        if len(text) < len(forced):
            return text, [(forced[len(text)],) * 2]
        return forced, matcher.bytes_behind(forced)

    def borders(self, data: bytes, following: ByteRanges) -> list[int]:
        """Where the encoding of data + anything allowed may have a border that data alone does not show: places inside `data`.

        Besides the starts of longer tokens, those in a run of white space at the end: many tokenizers cut it one character before what
        follows.
        """
        first = max(0, len(data) - self._max_piece_len)
        places = {at for at in range(first, len(data)) if self._may_span(data[at:], following)}
        end = len(data)
        while end > first and data[end - 1 : end].isspace():
            end -= 1
            places.add(end)
        return sorted(places)

    def _settled(self, left_ids: Sequence[int], forced: bytes, following: ByteRanges) -> list[int]:
        try:
            whole = self._continuation.encode(left_ids, forced)
            if whole is None:
                return []
            kept = whole
            for at in self.borders(forced, following):
                if (forced[at] & 0xC0) == 0x80:
                    return []  # a token that starts inside a character
                shorter = self._continuation.encode(left_ids, forced[:at])
                if shorter is None:
                    return []
                kept = kept[: num_shared(kept, shorter)]
                if not kept:
                    break
            return kept
        except UnknownContext:
            return []

    def _may_span(self, data: bytes, following: ByteRanges) -> bool:
        """Whether some token is `data` and at least one more byte of those that may follow."""
        pieces = self._sorted_pieces
        for low, high in following:
            at = bisect_left(pieces, data + bytes((low,)))
            if at < len(pieces) and pieces[at].startswith(data) and len(pieces[at]) > len(data) and pieces[at][len(data)] <= high:
                return True
        return False
