"""The three ways to decide between options, on hand-worked numbers."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.errors import InvalidParams
from ramet.lang.choices import decide, greedy_token_selection, token_length_normalized, unconditional_likelihood_normalized
from ramet.messages import ChoiceScore

# Case LP-08: one likely token against four tokens of which only the first is unlikely.
LP08 = [
    ChoiceScore((1,), (-2.0,), (-9.0,)),
    ChoiceScore((2, 3, 4, 5), (-6.0, -0.01, -0.01, -0.01), (-5.0, -0.01, -0.01, -0.01)),
]


@pytest.mark.parametrize(
    ("method", "winner"),
    [(token_length_normalized, "B"), (greedy_token_selection, "A"), (unconditional_likelihood_normalized, "A")],
)
def test_lp_08(method: Any, winner: str) -> None:
    decision = decide(["A", "B"], LP08, method)
    assert decision.decision == winner
    assert decision.meta_info["normalized_prompt_logprobs"] == pytest.approx([-2.0, -1.5075])
    assert decision.meta_info["input_token_logprobs"][1][0] == [-6.0, 2, None]
    assert decision.meta_info["output_token_logprobs"] == [[], []]


def test_what_each_method_tells() -> None:
    greedy = decide(["A", "B"], LP08, greedy_token_selection).meta_info["greedy_logprob_matrix"]
    assert greedy == [[-2.0, -2.0, -2.0, -2.0], [-6.0, -0.01, -0.01, -0.01]]
    free = decide(["A", "B"], LP08, unconditional_likelihood_normalized).meta_info
    assert free["normalized_unconditional_prompt_logprobs"] == pytest.approx([7.0, -0.25])
    assert free["unconditional_token_logprobs"][0] == [[-9.0, 1, None]]


def test_greedy_keeps_options_together_that_share_the_token() -> None:
    scores = [
        ChoiceScore((7, 1), (-1.0, -3.0)),
        ChoiceScore((7, 2), (-1.0000001, -0.5)),  # the same token, computed in another row
        ChoiceScore((8,), (-1.5,)),
    ]
    assert decide(["cash", "casio", "x"], scores, greedy_token_selection).decision == "casio"


def test_a_first_unconditional_none_counts_as_zero() -> None:
    scores = [ChoiceScore((1, 2), (-2.0, -2.0), (None, -4.0)), ChoiceScore((3,), (-0.5,), (None,))]
    meta = decide(["a", "b"], scores, unconditional_likelihood_normalized).meta_info
    assert meta["normalized_unconditional_prompt_logprobs"] == [0.0, -0.5]


@pytest.mark.parametrize("method", [token_length_normalized, greedy_token_selection])
def test_the_first_of_equals_wins(method: Any) -> None:
    assert decide(["a", "b"], [ChoiceScore((1,), (-1.0,)), ChoiceScore((2,), (-1.0,))], method).decision == "a"


def test_missing_unconditional_values_are_refused() -> None:
    with pytest.raises(ValueError, match="without the prompt"):
        unconditional_likelihood_normalized(
            choices=["a"], normalized_prompt_logprobs=[-1.0], input_token_logprobs=[[[-1.0, 1, None]]], output_token_logprobs=[[]]
        )
    with pytest.raises(InvalidParams, match="0 tokens, the option has 1"):
        decide(["a"], [ChoiceScore((1,), (-1.0,))], unconditional_likelihood_normalized)
    assert not greedy_token_selection.requires_unconditional_logprobs and not token_length_normalized.requires_unconditional_logprobs
