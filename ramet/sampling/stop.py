"""When one request has ended, from its new tokens and their text; and which of its text may be sent already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ramet.messages import FinishReason
from ramet.params import SamplingParams
from ramet.sampling.text_stops import TextStops


@dataclass(frozen=True, slots=True)
class StopVerdict:
    """What became of some new tokens: the first `num_accepted` count (the last of them completed the ending, if any)."""

    num_accepted: int
    finish: FinishReason | None


class StopChecker:
    """Follows the output of one request up to its ending.

    A token ends the request if, in this order, it is a stop token (an eos id unless `ignore_eos`, or one of
    `stop_token_ids`; its own text is dropped), it completes a stop string or pattern (see `text_stops`; the text ends before
    the match), or it is number `max_new_tokens`. With `no_stop_trim` the stop token's text, or the match, is kept; nothing
    after it ever is. Tokens before number `min_new_tokens` end nothing: a stop string that they complete is plain text, for
    good. `max_new_tokens` of 0 is an ending at birth.

    `finish` is None until the end, `num_tokens` the tokens that count, `text` the output so far (cut, once it has ended).
    """

    def __init__(self, params: SamplingParams, eos_ids: Sequence[int] = ()) -> None:
        self._params = params
        self._stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos_ids))
        self._stops = TextStops(params.stop, params.stop_regex)
        self._released_len = 0
        self._passed_len = 0  # text of the tokens that could not end the request
        self._ended_by_text = False
        self.text = ""
        self.num_tokens = 0
        self.finish: FinishReason | None = FinishReason("length", length=0) if params.max_new_tokens == 0 else None

    def push(self, token_id: int, text_piece: str) -> StopVerdict:
        """Take one token and the text that it brought (empty while a character is incomplete). Asserts that the request runs."""
        assert self.finish is None, "a token after the ending of its request"
        self.num_tokens += 1
        may_stop = self.num_tokens >= self._params.min_new_tokens
        if may_stop and token_id in self._stop_ids:
            self.finish = FinishReason("stop", matched=token_id)
            if self._params.no_stop_trim:
                self.text += text_piece
        else:
            self._add_text(text_piece, may_stop)
            if self.finish is None and self.num_tokens >= self._params.max_new_tokens:
                self.finish = FinishReason("length", length=self.num_tokens)
        return StopVerdict(1, self.finish)

    def extend(self, token_ids: Sequence[int], text_pieces: Sequence[str]) -> StopVerdict:
        """Take the tokens of one step in order, up to the one that ends the request; those after it are not taken."""
        num_accepted = 0
        for token_id, text_piece in zip(token_ids, text_pieces, strict=True):
            if self.finish is not None:
                break
            num_accepted += self.push(token_id, text_piece).num_accepted
        return StopVerdict(num_accepted, self.finish)

    def recount(self, num_tokens: int) -> None:
        """Note that the text so far is now spelled by another number of tokens."""
        assert self.finish is None, "a request that has ended is not spelled anew"
        self.num_tokens = num_tokens

    def end(self, finish: FinishReason) -> None:
        """Note an ending that is decided elsewhere, by a constraint that is complete; an earlier ending stands."""
        self.finish = self.finish or finish

    def add_tail(self, text_piece: str) -> FinishReason | None:
        """Take the text that the detokeniser still held when the tokens ended, or when the request is aborted.

        It belongs to the last token that counts, so it may still complete a stop string; after a match it is dropped.
        Call it before the last `release`. Gives the ending as it is now.
        """
        if not self._ended_by_text:
            self._add_text(text_piece, self.num_tokens >= self._params.min_new_tokens)
        return self.finish

    def release(self) -> str:
        """The text that was not released before and that no later token can take back; all the rest once it has ended."""
        end = len(self.text) if self.finish is not None else len(self.text) - self._stops.held_len(self.text)
        piece = self.text[self._released_len : end]
        self._released_len += len(piece)
        return piece

    def release_rest(self) -> str:
        """All text not released before, for a request that is aborted while it runs."""
        piece = self.text[self._released_len :]
        self._released_len = len(self.text)
        return piece

    def _add_text(self, text_piece: str, may_stop: bool) -> None:
        searched_len = len(self.text)
        self.text += text_piece
        if not may_stop:
            self._passed_len = len(self.text)
            return
        match = self._stops.find(self.text, searched_len, self._passed_len)
        if match is not None:
            self.finish = FinishReason("stop", matched=match.matched)
            self.text = self.text[: match.end if self._params.no_stop_trim else match.start]
            self._ended_by_text = True
