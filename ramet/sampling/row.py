"""What the sampler needs of one request, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ramet.messages import TokenLogprob
from ramet.params import LogprobParams, SamplingParams


@dataclass(slots=True)
class SampleRow:
    """One row of logits: whose it is and what came before. Not frozen: an engine may keep one a request and move it on.

    `position` is the index of the token to be drawn, counted from the start of the prompt. `seed` is the request's own
    `sampling_seed`, or one of 64 bits that the engine gave it. `allowed` is bool [vocab], true where a token may be drawn; `rejected` are
    ids that may not be drawn besides.
    """

    params: SamplingParams
    logprobs: LogprobParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    position: int
    seed: int
    eos_ids: tuple[int, ...] = ()
    allowed: Tensor | None = None
    rejected: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token of one row; `logprob` is given where the row wants it."""

    token_id: int
    logprob: TokenLogprob | None = None
