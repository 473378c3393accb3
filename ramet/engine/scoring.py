"""Scoring options behind a prompt: which requests that takes, and what their log-probabilities say."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ramet.engine.collect import Collector
from ramet.errors import InvalidParams
from ramet.messages import ChoiceScore, GenerateRequest
from ramet.params import LogprobParams, SamplingParams
from ramet.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """The requests that score each option of one prompt; `start_len` is where the options' own tokens begin."""

    start_len: int
    id_lists: tuple[tuple[int, ...], ...]
    conditional: tuple[GenerateRequest, ...]
    alone: tuple[GenerateRequest, ...]  # each option without the prompt; empty when not asked for

    @property
    def requests(self) -> tuple[GenerateRequest, ...]:
        """All of them, as one group."""
        return self.conditional + self.alone

    def scores(self, collectors: Mapping[str, Collector]) -> list[ChoiceScore]:
        """One score an option, from the finished requests."""
        scores: list[ChoiceScore] = []
        for i, request in enumerate(self.conditional):
            values = collectors[request.request_id].input_logprobs
            free = collectors[self.alone[i].request_id].input_logprobs if self.alone else None
            logprobs = tuple(value.logprob for value in values if value.logprob is not None)
            assert len(logprobs) == len(self.id_lists[i]) - self.start_len, "every token of a choice has a logprob"
            scores.append(
                ChoiceScore(
                    token_ids=self.id_lists[i][self.start_len :],
                    logprobs=logprobs,
                    unconditional_logprobs=None if free is None else tuple(value.logprob for value in free),
                    top=tuple(value.top for value in values),
                )
            )
        return scores


def plan_scores(
    tokenizer: Tokenizer,
    prompt: str,
    choices: Sequence[str],
    *,
    unconditional: bool,
    top_num: int,
    cache_salt: str | None,
    group_id: str | None,
) -> ScorePlan:
    """The requests of `Engine.score`; raises InvalidParams when the tokenizer leaves nothing to score after."""
    start_len, id_lists = _choice_ids(tokenizer, prompt, choices)
    group = group_id or uuid.uuid4().hex

    def request(ids: tuple[int, ...], start: int, num_top: int) -> GenerateRequest:
        return GenerateRequest(
            request_id=uuid.uuid4().hex,
            prompt_ids=ids,
            params=SamplingParams(max_new_tokens=0),
            logprobs=LogprobParams(is_wanted=True, start_len=start, top_num=num_top),
            cache_salt=cache_salt or "",
            group_id=group,
        )

    return ScorePlan(
        start_len,
        tuple(id_lists),
        tuple(request(ids, start_len, top_num) for ids in id_lists),
        tuple(request(ids[start_len:], 0, 0) for ids in id_lists) if unconditional else (),
    )


def _choice_ids(tokenizer: Tokenizer, prompt: str, choices: Sequence[str]) -> tuple[int, list[tuple[int, ...]]]:
    """The ids of prompt + choice for each choice, and where scoring starts: after what all share with the prompt's own ids."""
    full = [tuple(ids) for ids in tokenizer.encode_batch([prompt + choice for choice in choices])]
    own = tuple(tokenizer.encode(prompt)) if prompt else ()
    if not own:
        anchor = tokenizer.bos_token_id
        if anchor is None:
            anchor = tokenizer.eos_token_ids[0] if tokenizer.eos_token_ids else None
        if anchor is None:
            raise InvalidParams("prompt", prompt, "is empty and this tokenizer has neither BOS nor EOS to score after")
        if all(ids[0] == anchor for ids in full):
            return 1, full
        return 1, [(anchor, *ids) for ids in full]
    start_len = min(_shared_len(own, ids) for ids in full)
    if any(len(ids) == start_len for ids in full):
        start_len -= 1  # a choice that adds no token of its own: score the last shared one, for all alike
    if start_len < 1:
        raise InvalidParams("prompt", prompt, "is merged into the choices by the tokenizer; put more text before them")
    return start_len, full


def _shared_len(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
