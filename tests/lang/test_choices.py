"""The four ways to decide between options, on hand-worked numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ramet.errors import InvalidParams
from ramet.lang.choices import (
    decide,
    exact_likelihood,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from ramet.messages import ChoiceScore

# Case LP-08: one likely token against four tokens of which only the first is unlikely.
LP08 = [
    ChoiceScore((1,), (-2.0,), (-9.0,)),
    ChoiceScore((2, 3, 4, 5), (-6.0, -0.01, -0.01, -0.01), (-5.0, -0.01, -0.01, -0.01)),
]


@pytest.mark.parametrize(
    ("method", "winner"),
    [(token_length_normalized, "B"), (greedy_token_selection, "A"), (unconditional_likelihood_normalized, "A"), (exact_likelihood, "A")],
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


def tree(*options: tuple[tuple[int, ...], tuple[float, ...]]) -> list[ChoiceScore]:
    """Scores from token ids and the probability of each token."""
    return [ChoiceScore(ids, tuple(math.log(p) for p in probabilities)) for ids, probabilities in options]


@pytest.mark.parametrize(
    ("scores", "mass"),
    [
        # Nothing nests: the products of the tokens' probabilities.
        (tree(((1, 2), (0.5, 0.5)), ((1, 3), (0.5, 0.25)), ((4,), (0.125,))), [0.25, 0.125, 0.125]),
        # "yes" begins "yes please", which takes its share away: 0.75 of 0.5 goes on.
        (tree(((1,), (0.5,)), ((1, 2), (0.5, 0.75)), ((4,), (0.25,))), [0.125, 0.375, 0.25]),
        # Three in a row, in any order, and a sister: each loses to its nearest longer ones alone.
        (
            tree(((1, 2, 3), (0.5, 0.5, 0.5)), ((1,), (0.5,)), ((1, 2), (0.5, 0.5)), ((1, 5, 6), (0.5, 0.25, 1.0))),
            [0.125, 0.125, 0.125, 0.125],
        ),
        # The same text in other tokens is another event.
        (tree(((1,), (0.5,)), ((7, 2), (0.25, 1.0))), [0.5, 0.25]),
        # A repeated option counts once.
        (tree(((1,), (0.5,)), ((1,), (0.5,)), ((2,), (0.25,)), ((1, 3), (0.5, 0.5))), [0.25, 0.0, 0.25, 0.25]),
        # Everything goes on: what is left is below what float32 tells, and never a domain error.
        (tree(((1,), (0.5,)), ((1, 2), (0.5, 0.75)), ((1, 3), (0.5, 0.2500001))), [0.0, 0.375, 0.125]),
    ],
)
def test_exact_probabilities(scores: list[ChoiceScore], mass: list[float]) -> None:
    choices = [f"option {i}" for i in range(len(scores))]
    decision = decide(choices, scores, exact_likelihood)
    meta = decision.meta_info
    assert [math.exp(value) for value in meta["choice_logprobs"]] == pytest.approx(mass, abs=1e-6)
    assert meta["choice_probabilities"] == pytest.approx([value / sum(mass) for value in mass], abs=1e-6)
    assert sum(meta["choice_probabilities"]) == pytest.approx(1)
    assert decision.decision == choices[mass.index(max(mass))]
    assert len(meta["normalized_prompt_logprobs"]) == len(meta["input_token_logprobs"]) == len(choices)


def test_exact_probabilities_of_options_that_are_all_unlikely() -> None:
    scores = [ChoiceScore((1, 2), (-1000.0, -900.0)), ChoiceScore((3,), (-1900.5,))]
    meta = decide(["a", "b"], scores, exact_likelihood).meta_info
    assert meta["choice_logprobs"] == [-1900.0, -1900.5]
    assert meta["choice_probabilities"] == pytest.approx([1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))])


@pytest.mark.parametrize("method", [token_length_normalized, greedy_token_selection, exact_likelihood])
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
