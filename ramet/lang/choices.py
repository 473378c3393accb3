"""Which option of a `select` wins: four methods over the log-probabilities of the options' own tokens."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ramet.errors import InvalidParams
from ramet.messages import ChoiceScore

_MAX_SHARE = 1.0 - 2.0**-24  # what float32 tells from 1; rounding alone can bring a share to 1 or above
TokenLogprobs = Sequence[Sequence[Any]]  # one [logprob, token id, text or None] a token


@dataclass(frozen=True, slots=True)
class ChoicesDecision:
    """The winning option, and what it was decided on, one entry an option."""

    decision: str
    meta_info: dict[str, Any]


class ChoicesSamplingMethod(ABC):
    """Decides between options from the log-probabilities of their tokens."""

    @property
    def requires_unconditional_logprobs(self) -> bool:
        """Whether the options' log-probabilities without the prompt are needed too."""
        return False

    @abstractmethod
    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenLogprobs],
        output_token_logprobs: Sequence[TokenLogprobs],
        unconditional_token_logprobs: Sequence[TokenLogprobs] | None = None,
    ) -> ChoicesDecision:
        """Decide; the first of equals wins. Every list has one entry an option; values are natural logarithms."""


class TokenLengthNormalized(ChoicesSamplingMethod):
    """The option with the highest mean log-probability of its tokens."""

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenLogprobs],
        output_token_logprobs: Sequence[TokenLogprobs],
        unconditional_token_logprobs: Sequence[TokenLogprobs] | None = None,
    ) -> ChoicesDecision:
        meta = _base_meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        return ChoicesDecision(choices[_argmax(normalized_prompt_logprobs)], meta)


class GreedyTokenSelection(ChoicesSamplingMethod):
    """Token by token, the options whose next token is the most probable stay; a short option goes on with its own mean.

    Options that share the winning token stay together even when rounding gives them different values.
    """

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenLogprobs],
        output_token_logprobs: Sequence[TokenLogprobs],
        unconditional_token_logprobs: Sequence[TokenLogprobs] | None = None,
    ) -> ChoicesDecision:
        num_steps = max(len(tokens) for tokens in input_token_logprobs)
        values = [[float(token[0] or 0.0) for token in tokens] for tokens in input_token_logprobs]
        ids = [[token[1] for token in tokens] for tokens in input_token_logprobs]
        matrix = [row + [sum(row) / len(row)] * (num_steps - len(row)) for row in values]
        remaining = list(range(len(choices)))
        for step in range(num_steps):
            best = max(remaining, key=lambda i: matrix[i][step])
            best_id = ids[best][step] if step < len(ids[best]) else None
            remaining = [
                i
                for i in remaining
                if matrix[i][step] == matrix[best][step] or (best_id is not None and step < len(ids[i]) and ids[i][step] == best_id)
            ]
            if len(remaining) == 1:
                break
        meta = _base_meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        return ChoicesDecision(choices[remaining[0]], {**meta, "greedy_logprob_matrix": matrix})


class UnconditionalLikelihoodNormalized(ChoicesSamplingMethod):
    """The option that the prompt makes likelier the most: the mean of conditional minus unconditional log-probability.

    A first unconditional value of None (nothing predicts the first token) counts as 0.

    Raises InvalidParams when the unconditional values are missing or of another number.
    """

    @property
    def requires_unconditional_logprobs(self) -> bool:
        return True

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenLogprobs],
        output_token_logprobs: Sequence[TokenLogprobs],
        unconditional_token_logprobs: Sequence[TokenLogprobs] | None = None,
    ) -> ChoicesDecision:
        if unconditional_token_logprobs is None:
            raise InvalidParams("unconditional_token_logprobs", None, "this method needs the options' values without the prompt")
        scores: list[float] = []
        for conditional, alone in zip(input_token_logprobs, unconditional_token_logprobs, strict=True):
            if len(conditional) != len(alone):
                raise InvalidParams("unconditional_token_logprobs", alone, f"has {len(alone)} tokens, the option has {len(conditional)}")
            differences = [float(a[0] or 0.0) - float(b[0] or 0.0) for a, b in zip(conditional, alone, strict=True)]
            scores.append(sum(differences) / len(differences))
        meta = _base_meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        meta["unconditional_token_logprobs"] = list(unconditional_token_logprobs)
        meta["normalized_unconditional_prompt_logprobs"] = scores
        return ChoicesDecision(choices[_argmax(scores)], meta)


class ExactLikelihood(ChoicesSamplingMethod):
    """The option that the model would most probably write, whatever its length: the sum of the log-probabilities of its tokens.

    The options are the leaves of a tree of tokens. One that is the beginning of another ("yes" and "yes, please") stands for the texts that
    begin with it and do not go on to the longer one, so that the events exclude each other and the longer one can win. A second option with
    the same tokens has probability 0.

    Tells `choice_logprobs`, the log-probability of each option after the prompt, and `choice_probabilities`, the same among the options
    (their sum is 1).
    """

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenLogprobs],
        output_token_logprobs: Sequence[TokenLogprobs],
        unconditional_token_logprobs: Sequence[TokenLogprobs] | None = None,
    ) -> ChoicesDecision:
        ids = [tuple(token[1] for token in tokens) for tokens in input_token_logprobs]
        values = [[float(token[0] or 0.0) for token in tokens] for tokens in input_token_logprobs]
        places: dict[tuple[Any, ...], int] = {}
        for i, own in enumerate(ids):
            places.setdefault(own, i)
        shares = [0.0] * len(choices)  # of the texts that begin with an option, those that go on to the next longer one
        for own, i in places.items():
            start = next((end for end in range(len(own) - 1, 0, -1) if own[:end] in places), None)
            if start is not None:
                shares[places[own[:start]]] += math.exp(math.fsum(values[i][start:]))
        logprobs = [-math.inf] * len(choices)
        for i in places.values():
            logprobs[i] = math.fsum(values[i]) + math.log1p(-min(shares[i], _MAX_SHARE))
        top = max(logprobs)
        weights = [math.exp(logprob - top) for logprob in logprobs]
        meta = _base_meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        meta["choice_logprobs"] = logprobs
        meta["choice_probabilities"] = [weight / math.fsum(weights) for weight in weights]
        return ChoicesDecision(choices[_argmax(logprobs)], meta)


def decide(choices: Sequence[str], scores: Sequence[ChoiceScore], method: ChoicesSamplingMethod) -> ChoicesDecision:
    """Apply a method to what a backend scored, one ChoiceScore an option. Backends share this."""
    assert len(choices) == len(scores), f"{len(choices)} options and {len(scores)} scores"
    assert all(score.token_ids and len(score.logprobs) == len(score.token_ids) for score in scores), (
        "an option needs tokens and a value each"
    )
    conditional = [_triples(score.logprobs, score.token_ids) for score in scores]
    alone = None
    if method.requires_unconditional_logprobs:
        alone = [_triples(score.unconditional_logprobs or (), score.token_ids) for score in scores]
    return method(
        choices=choices,
        normalized_prompt_logprobs=[sum(score.logprobs) / len(score.logprobs) for score in scores],
        input_token_logprobs=conditional,
        output_token_logprobs=[[] for _ in scores],
        unconditional_token_logprobs=alone,
    )


def _triples(logprobs: Sequence[float | None], ids: Sequence[int]) -> list[list[Any]]:
    return [[logprob, token_id, None] for logprob, token_id in zip(logprobs, ids, strict=False)]


def _argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _base_meta(normalized: Sequence[float], inputs: Sequence[TokenLogprobs], outputs: Sequence[TokenLogprobs]) -> dict[str, Any]:
    return {
        "normalized_prompt_logprobs": list(normalized),
        "input_token_logprobs": list(inputs),
        "output_token_logprobs": list(outputs),
    }


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()
exact_likelihood = ExactLikelihood()
