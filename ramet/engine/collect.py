"""From the chunks of a request to the published reply: `text`, `output_ids`, `meta_info`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ramet.messages import Chunk, Counts, FinishReason, GenerateRequest, TokenLogprob

LogprobTriple = list[Any]  # [logprob, token id, text or None]


class Collector:
    """Gathers one request; `reply` may be asked for after any chunk (the text is cumulative)."""

    def __init__(self, request: GenerateRequest, token_text: Callable[[int], str] | None, start_time_s: float) -> None:
        self._request = request
        self._token_text = token_text
        self._start_time_s = start_time_s
        self._text: list[str] = []
        self._output_ids: list[int] = []
        self._input_logprobs: list[TokenLogprob] = []
        self._output_logprobs: list[TokenLogprob] = []
        self._counts = Counts(len(request.prompt_ids), 0, 0)
        self._finish: FinishReason | None = None
        self._end_time_s = start_time_s

    @property
    def is_finished(self) -> bool:
        """Whether the last chunk was taken."""
        return self._finish is not None

    @property
    def input_logprobs(self) -> list[TokenLogprob]:
        """Prompt logprobs, from the position asked for."""
        return self._input_logprobs

    def take(self, chunk: Chunk) -> None:
        """Add a chunk."""
        assert self._finish is None, "a chunk after the last"
        self._text.append(chunk.text)
        if chunk.num_taken_back:
            del self._output_ids[-chunk.num_taken_back :]
            del self._output_logprobs[-chunk.num_taken_back :]
        self._output_ids.extend(chunk.token_ids)
        self._input_logprobs.extend(chunk.input_logprobs or ())
        self._output_logprobs.extend(chunk.output_logprobs or ())
        self._counts = chunk.counts
        self._finish = chunk.finish
        self._end_time_s = time.perf_counter()

    def reply(self) -> dict[str, Any]:
        """The published shape, with everything so far."""
        self._text = ["".join(self._text)]
        meta: dict[str, Any] = {
            "id": self._request.request_id,
            "finish_reason": self._finish.to_json() if self._finish else None,
            "prompt_tokens": self._counts.prompt_len,
            "completion_tokens": self._counts.num_output,
            "cached_tokens": self._counts.num_cached,
            "num_retractions": self._counts.num_retractions,
            "completion_tokens_wo_jump_forward": self._counts.num_output - self._counts.num_forced,
            "e2e_latency": self._end_time_s - self._start_time_s,
        }
        distortion = self._counts.distortion
        if distortion is not None:
            meta["forced_tokens"] = self._counts.num_forced
            meta["noncanonical"] = distortion.num_noncanonical
            meta["masked_mass"] = distortion.masked_mass
        wanted = self._request.logprobs
        if wanted.is_wanted:
            meta["input_token_logprobs"] = [self._triple(v.token_id, v.logprob) for v in self._input_logprobs]
            meta["output_token_logprobs"] = [self._triple(v.token_id, v.logprob) for v in self._output_logprobs]
            meta["output_token_logprobs_length"] = len(self._output_logprobs)
            if wanted.top_num:
                meta["input_top_logprobs"] = [self._alternatives(v, v.top) for v in self._input_logprobs]
                meta["output_top_logprobs"] = [self._alternatives(v, v.top) for v in self._output_logprobs]
            if wanted.token_ids:
                meta["input_token_ids_logprobs"] = [self._alternatives(v, v.picked) for v in self._input_logprobs]
                meta["output_token_ids_logprobs"] = [self._alternatives(v, v.picked) for v in self._output_logprobs]
        return {"text": self._text[0], "output_ids": list(self._output_ids), "meta_info": meta}

    def _triple(self, token_id: int, logprob: float | None) -> LogprobTriple:
        return [logprob, token_id, self._token_text(token_id) if self._token_text else None]

    def _alternatives(self, value: TokenLogprob, pairs: tuple[tuple[int, float], ...]) -> list[LogprobTriple] | None:
        """None where nothing predicts the position, as published."""
        if value.logprob is None:
            return None
        return [self._triple(token_id, logprob) for token_id, logprob in pairs]
