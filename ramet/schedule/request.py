"""A request as the scheduler sees it: token ids, a place in the queue, a lease. No text, no sampling."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from ramet.cache import Lease

Ids = npt.NDArray[np.int64]


class Status(Enum):
    """Where a request is in its life. A retracted request is WAITING again."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Request:
    """One prompt and the tokens drawn or forced for it so far.

    `first_logit` is the first position whose logits are wanted: at the start the prompt's last one normally, an earlier one when prompt
    logprobs are asked for, the prompt's length when none are (a prompt that is only to be cached); later that of the last token drawn.
    `max_new_tokens` has been clipped by the engine to what fits the context and the pool.
    """

    def __init__(
        self,
        request_id: str,
        prompt_ids: Ids | tuple[int, ...] | list[int],
        max_new_tokens: int,
        *,
        first_logit: int | None = None,
        priority: int = 0,
        salt: str = "",
        group_id: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt_len = len(prompt_ids)
        assert self.prompt_len > 0, "an empty prompt has nothing to compute"
        self._ids = np.empty(self.prompt_len + min(max_new_tokens, 64), dtype=np.int64)
        self._ids[: self.prompt_len] = prompt_ids
        self.len = self.prompt_len
        self.max_new_tokens = max_new_tokens
        default = self.prompt_len - 1 if max_new_tokens > 0 else self.prompt_len
        self.first_logit = default if first_logit is None else min(first_logit, default)
        self.priority = priority
        self.salt = salt
        self.group_id = group_id
        self.status = Status.WAITING
        self.lease: Lease | None = None
        self.sequence = -1  # order of arrival, set by the waiting queue
        self.overtaken_by = 0  # prefill tokens of later arrivals that were admitted before this one
        self.num_seen = 0  # leading tokens up to which this request's own rows have gone, and its logits have been looked at
        self.num_prompt_covered = 0  # leading prompt tokens that are known to be computed, by whomever
        self.num_prompt_computed = 0  # prompt tokens this request computed itself
        self.num_once_computed = 0  # leading tokens that a row of this request has computed at some time
        self.num_retractions = 0
        self.is_parked = False  # all is computed, and the next token cannot be drawn yet

    @property
    def ids(self) -> Ids:
        """Prompt and output."""
        return self._ids[: self.len]

    @property
    def num_output(self) -> int:
        """Tokens drawn or forced so far."""
        return self.len - self.prompt_len

    @property
    def num_cached(self) -> int:
        """Prompt tokens that this request found in the cache or that another request of the same pass computed for it."""
        return max(0, self.num_prompt_covered - self.num_prompt_computed)

    @property
    def num_remaining(self) -> int:
        """Tokens that may still be drawn."""
        return self.max_new_tokens - self.num_output

    @property
    def max_match_len(self) -> int:
        """How much of `ids` may come from the cache: what is wanted logits of must be computed."""
        return min(self.first_logit, self.len)

    @property
    def next_logit(self) -> int:
        """The first position whose logits this request still has to see; no one else's row may compute that token for it."""
        return max(self.first_logit, self.num_seen)

    @property
    def num_without_slot(self) -> int:
        """Tokens added since the last step; each needs a slot before it can be computed."""
        assert self.lease is not None
        return self.len - self.lease.len

    def num_logits(self, start: int, end: int) -> int:
        """How many of the tokens at positions start .. end have their logits looked at: always the last ones of the stretch."""
        return max(0, end - max(start, self.first_logit))

    def append(self, token_id: int) -> None:
        """Add a drawn token; its keys and values are computed by the next step."""
        self._put((token_id,))
        self.first_logit = self.len - 1

    def extend(self, token_ids: Sequence[int], *, wants_logits: bool) -> None:
        """Add tokens that nothing had to draw; with `wants_logits` the logits that predict them are looked at all the same."""
        self._put(token_ids)
        if not wants_logits:
            self.first_logit = self.len - 1

    def cut(self, length: int) -> None:
        """Forget the output from position `length` on; the logits of the last token that stays are wanted anew."""
        assert self.prompt_len <= length <= self.len, f"{self} cannot be cut to {length} tokens"
        self.len = length
        self.first_logit = min(self.first_logit, length - 1)
        self.num_seen = min(self.num_seen, length - 1)
        self.num_once_computed = min(self.num_once_computed, length)

    def _put(self, token_ids: Sequence[int]) -> None:
        end = self.len + len(token_ids)
        if end > len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(max(64, end), dtype=np.int64)])
        self._ids[self.len : end] = token_ids
        self.len = end

    def __repr__(self) -> str:
        return f"Request({self.request_id}, {self.prompt_len}+{self.num_output} tokens, {self.status.value})"
