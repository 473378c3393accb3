"""What can ever fit: checked before a request enters the queue, so that no one waits for the impossible."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.errors import InvalidParams, InvalidRequest, PromptTooLong
from ramet.messages import GenerateRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens."""

    context_len: int  # of the model or as configured
    num_slots: int  # of the KV pool
    vocab_size: int
    num_valid_ids: int

    def check(self, request: GenerateRequest) -> None:
        """Refuse a request that could never run.

        A prompt needs room for at least one output token unless none is asked for. A `max_new_tokens` that does not fit the context or
        the pool is not an error: the request ends with `length` when the room is used up.

        Raises PromptTooLong, InvalidParams (ids outside the vocabulary) or InvalidRequest (an empty prompt).
        """
        prompt_len = len(request.prompt_ids)
        if prompt_len == 0:
            raise InvalidRequest("the prompt has no tokens; give at least one character or token id")
        room = 1 if request.params.max_new_tokens > 0 else 0
        if prompt_len + room > self.context_len:
            raise PromptTooLong(prompt_len, self.context_len - room, "the context length")
        if prompt_len > self.num_slots:
            raise PromptTooLong(prompt_len, self.num_slots, "the KV pool (max_total_tokens)")
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= self.num_valid_ids:
            bad = next(i for i in request.prompt_ids if not 0 <= i < self.num_valid_ids)
            raise InvalidParams("input_ids", bad, f"is outside the vocabulary of {self.num_valid_ids} ids")
        for name, ids in (
            ("logit_bias", [token_id for token_id, _ in request.params.logit_bias]),
            ("stop_token_ids", list(request.params.stop_token_ids)),
            ("token_ids_logprob", list(request.logprobs.token_ids)),
        ):
            for token_id in ids:
                if token_id >= self.num_valid_ids:
                    raise InvalidParams(name, token_id, f"is outside the vocabulary of {self.num_valid_ids} ids")
        if request.logprobs.is_wanted and request.logprobs.start_len > prompt_len:
            raise InvalidParams("logprob_start_len", request.logprobs.start_len, f"is beyond the prompt of {prompt_len} tokens")
        if request.logprobs.top_num > self.num_valid_ids:
            raise InvalidParams("top_logprobs_num", request.logprobs.top_num, f"is more than the vocabulary of {self.num_valid_ids} ids")

    def max_new_tokens(self, request: GenerateRequest) -> int:
        """The output length that is both asked for and possible. The last token drawn needs no slot."""
        prompt_len = len(request.prompt_ids)
        return min(request.params.max_new_tokens, self.context_len - prompt_len, self.num_slots - prompt_len + 1)
