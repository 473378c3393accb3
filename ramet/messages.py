"""What crosses the border of the engine: requests in, chunks and endings out. Frozen records, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ramet.params import LogprobParams, SamplingParams


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GenerateRequest:
    """One prompt and what is wanted of it. `params.n` is 1 here: several samples are several requests of one group."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    logprobs: LogprobParams = field(default_factory=LogprobParams)
    priority: int = 0  # larger goes first under the `priority` order
    cache_salt: str = ""  # requests with different salts never share a cached token
    group_id: str | None = None  # siblings (forks, samples, options) are admitted next to each other
    sample_of: str | None = None  # the caller's id, where this is one of several samples


@dataclass(frozen=True, slots=True)
class Submit:
    """Requests that arrive together; they are admitted as one group where memory allows."""

    requests: tuple[GenerateRequest, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """Cancel one request, or all samples of one; unknown ids are ignored because it may just have ended."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Drop every cached token; refused with EngineBusy while requests are open."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the loop, answered between two steps: `info` (sizes, counts, counters) or `tree` (the radix tree and who holds it)."""

    ticket: int
    what: str


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a request ended: `stop` (with what matched: a token id or a string), `length`, or `abort`."""

    kind: str
    matched: int | str | None = None
    length: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The published shape."""
        if self.kind == "stop":
            return {"type": "stop", "matched": self.matched}
        if self.kind == "length":
            return {"type": "length", "length": self.length}
        return {"type": self.kind}


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token at one position, with the alternatives asked for.

    `logprob` is None for the first token of a prompt, which nothing predicts; then `top` and `picked` are empty.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), most likely first
    picked: tuple[tuple[int, float], ...] = ()  # the explicit token ids of LogprobParams


@dataclass(frozen=True, slots=True)
class Distortion:
    """How far a constraint has bent what the model would have written (the paper's B.3).

    `num_noncanonical` counts output tokens that are not those of the output's own encoding; `masked_mass` is the probability that the
    masks took away, 0 to 1, the mean over the tokens that were drawn (0 when none was).
    """

    num_noncanonical: int
    masked_mass: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of one request, exact at its ending."""

    prompt_len: int
    num_cached: int  # prompt tokens that this request did not have to compute
    num_output: int
    num_retractions: int = 0
    num_forced: int = 0  # output tokens that nothing had to draw
    distortion: Distortion | None = None  # of a constrained request, at its ending


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens and text of a request since the last chunk; the one with `finish` set is the last."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    counts: Counts
    finish: FinishReason | None = None
    input_logprobs: tuple[TokenLogprob, ...] | None = None  # in the first chunk after the prompt is computed
    output_logprobs: tuple[TokenLogprob, ...] | None = None  # one a token of `token_ids`
    num_taken_back: int = 0  # token ids of earlier chunks, the last ones, that `token_ids` stand in for; their text stays


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with an error; the only ending it gets."""

    request_id: str
    error: Exception


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """What the model gives to one option that follows a prompt.

    `token_ids` are the option's own tokens in the canonical tokenisation of prompt + option (when an option merges with the end
    of the prompt, every option is scored from the first token that differs). `logprobs` has one value a token.
    `unconditional_logprobs` are those of the option without the prompt (the first may be None), if they were asked for.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    unconditional_logprobs: tuple[float | None, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a message that carried a ticket: a value, or the error that refused it."""

    ticket: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop; open requests fail with EngineClosed."""
