from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.params import LogprobParams, SamplingParams
from ramet.sampling.args import RowValues, RuleArgs, build_args
from ramet.sampling.nucleus import nucleus_by_bins, nucleus_by_sort
from ramet.sampling.row import SampleRow
from ramet.sampling.rules import RULES, top_k

NO = -math.inf
BASE = [2.0, 1.0, 0.0, -1.0, 1.0, -2.0]


def row(params: SamplingParams, prompt: Sequence[int] = (), output: Sequence[int] = (), **more: Any) -> SampleRow:
    return SampleRow(params, LogprobParams(), prompt, output, len(prompt) + len(output), 1, more.get("eos_ids", (5,)), more.get("allowed"))


def ruled(rows: Sequence[SampleRow], logits: torch.Tensor) -> torch.Tensor:
    args = build_args(rows, logits.shape[-1], logits.device)
    for name, rule in RULES:
        if getattr(args, name) is not None:
            logits = rule(logits, getattr(args, name))
    return logits


def test_every_rule_has_an_argument_and_every_argument_a_rule() -> None:
    assert [f.name for f in fields(RuleArgs)] == [name for name, _ in RULES]


def test_a_row_that_needs_nothing_brings_no_argument() -> None:
    args = build_args([row(SamplingParams()), row(SamplingParams(temperature=0, top_p=0.5, min_p=0.1))], 6, torch.device("cpu"))
    assert all(getattr(args, f.name) is None for f in fields(RuleArgs))


@pytest.mark.parametrize(
    ("values", "prompt", "output", "expected"),
    [
        ({"logit_bias": {1: 2.5, 3: -100}}, [], [], [2, 3.5, 0, -101, 1, -2]),
        ({"repetition_penalty": 2.0}, [0, 3, 999, -1], [4, 4], [1, 1, 0, -2, 0.5, -2]),
        ({"frequency_penalty": 0.5}, [0, 1], [4, 4, 3], [2, 1, 0, -1.5, 0, -2]),
        ({"presence_penalty": 0.5}, [0, 1], [4, 4, 3], [2, 1, 0, -1.5, 0.5, -2]),
        ({"frequency_penalty": -1.0, "presence_penalty": 0.25}, [], [0], [2.75, 1, 0, -1, 1, -2]),
        ({"min_new_tokens": 2, "stop_token_ids": [1]}, [], [0], [2, NO, 0, -1, 1, NO]),
        ({"min_new_tokens": 2, "stop_token_ids": [1]}, [], [0, 0], BASE),
        ({"min_new_tokens": 2, "stop_token_ids": [1], "ignore_eos": True}, [], [0], [2, NO, 0, -1, 1, -2]),
        ({"temperature": 0.5}, [], [], [4, 2, 0, -2, 2, -4]),
        ({"top_k": 2}, [], [], [2, 1, NO, NO, 1, NO]),  # the tie with the second is kept
        ({"top_k": 4}, [], [], [2, 1, 0, NO, 1, NO]),
        ({"top_k": 6}, [], [], BASE),
        # weights 1, e^-1, e^-1, e^-2, e^-3, e^-4 of 1.9392: 0.5157, 0.1897 twice, 0.0698, 0.0257, 0.0094
        ({"top_p": 0.5}, [], [], [2, NO, NO, NO, NO, NO]),
        ({"top_p": 0.52}, [], [], [2, 1, NO, NO, 1, NO]),
        ({"top_p": 0.9}, [], [], [2, 1, 0, NO, 1, NO]),
        ({"top_p": 0.98}, [], [], [2, 1, 0, -1, 1, NO]),
        ({"min_p": 0.13}, [], [], [2, 1, 0, NO, 1, NO]),  # e^-2 = 0.1353
        ({"min_p": 0.14}, [], [], [2, 1, NO, NO, 1, NO]),
        ({"min_p": 1.0}, [], [], [2, NO, NO, NO, NO, NO]),
        # of the three tokens that top-k keeps, the first has 0.5761
        ({"top_k": 2, "top_p": 0.57}, [], [], [2, NO, NO, NO, NO, NO]),
        ({"temperature": 2.0, "min_p": 0.3}, [], [], [1, 0.5, 0, NO, 0.5, NO]),
    ],
)
def test_rules_worked_by_hand(values: dict[str, Any], prompt: list[int], output: list[int], expected: list[float]) -> None:
    wanted = row(SamplingParams(**values), prompt, output)
    alone = ruled([wanted], torch.tensor([BASE]))
    torch.testing.assert_close(alone[0], torch.tensor(expected, dtype=torch.float32))
    # Beside rows that need nothing: the same, and they stay as they are.
    idle = row(SamplingParams())
    among = ruled([idle, wanted, idle], torch.tensor([BASE] * 3))
    torch.testing.assert_close(among, torch.tensor([BASE, alone[0].tolist(), BASE]), rtol=0, atol=0)


def test_allowed_mask() -> None:
    mask = torch.tensor([False, True, False, True, False, False, True])  # as wide as padded logits
    got = ruled([row(SamplingParams()), row(SamplingParams(), allowed=mask)], torch.tensor([BASE] * 2))
    assert got.tolist() == [BASE, [NO, 1, NO, -1, NO, NO]]


def test_a_mask_that_only_allows_the_end_wins_over_min_new_tokens() -> None:
    only_end = torch.tensor([False] * 5 + [True])
    got = ruled([row(SamplingParams(min_new_tokens=3), allowed=only_end)], torch.tensor([BASE]))
    assert got.tolist() == [[NO] * 5 + [-2]]
    more = torch.tensor([False] * 4 + [True] * 2)
    got = ruled([row(SamplingParams(min_new_tokens=3), allowed=more)], torch.tensor([BASE]))
    assert got.tolist() == [[NO] * 4 + [1, NO]]


def test_rows_with_different_k() -> None:
    got = top_k(torch.tensor([[3.0, 2, 1, 0]] * 2), RowValues(None, torch.tensor([1.0, 3.0])))
    assert got.tolist() == [[3, NO, NO, NO], [3, 2, 1, NO]]


def sorted_nucleus(logits: list[float], top_p: float) -> list[float]:
    """Top-p in plain Python on the float32 weights."""
    weights = (torch.tensor(logits) - max(logits)).exp().tolist()
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    wanted = sum(weights[i] for i in order) * float(torch.tensor(top_p))
    mass = 0.0
    for i in order:
        mass += weights[i]
        if mass >= wanted:
            return [x if x >= logits[i] else NO for x in logits]
    raise AssertionError("the whole mass is not enough")


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.sampled_from([1, 2, 7, 300, 5000]),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 5.0, 60.0]),
    top_p=st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.99, 0.999999]),
    num_levels=st.sampled_from([0, 3]),
)
def test_top_p_without_a_sort_is_top_p(seed: int, width: int, scale: float, top_p: float, num_levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, width, generator=generator) * scale
    if num_levels:  # many ties
        logits = (logits * num_levels).round() / num_levels
    logits[0, ::3] = NO if width > 1 else 0.0
    logits[0, -1] = 1.0
    share = torch.full((3, 1), top_p)
    by_bins = nucleus_by_bins(logits.clone(), share)
    assert torch.equal(by_bins, nucleus_by_sort(logits.clone(), share))
    if width <= 300:
        assert by_bins.tolist() == [sorted_nucleus(line, top_p) for line in logits.tolist()]


def test_top_p_over_several_blocks_of_rows() -> None:
    logits = torch.randn(9, 40_000, generator=torch.Generator().manual_seed(3)) * 2
    share = torch.linspace(0.1, 0.95, 9)[:, None]
    assert torch.equal(nucleus_by_bins(logits.clone(), share), nucleus_by_sort(logits.clone(), share))
