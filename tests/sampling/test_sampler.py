from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ramet.params import LogprobParams, SamplingParams
from ramet.sampling.sampler import Sampler, SampleRow, draw

NUM_DRAWS = 20_000
# Chance 0.001 of a larger chi-square, by degrees of freedom.
CHI_LIMITS = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}
# exp of these is 16, 8, 4, 2, 1, 1 (of 32)
SIX = [math.log(w) for w in (16, 8, 4, 2, 1, 1)]


def row(seed: int = 1, position: int = 0, logprobs: LogprobParams | None = None, **values: Any) -> SampleRow:
    return SampleRow(SamplingParams(**values), logprobs or LogprobParams(), (), (), position, seed)


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        ({}, [16, 8, 4, 2, 1, 1]),
        ({"temperature": 0.5}, [256, 64, 16, 4, 1, 1]),
        ({"temperature": 2.0, "top_k": 2}, [4, math.sqrt(8), 0, 0, 0, 0]),
        ({"top_k": 3}, [16, 8, 4, 0, 0, 0]),
        ({"top_p": 0.7}, [16, 8, 0, 0, 0, 0]),
        ({"top_p": 0.8}, [16, 8, 4, 0, 0, 0]),
        ({"min_p": 0.1}, [16, 8, 4, 2, 0, 0]),
        ({"min_p": 0.3, "logit_bias": {5: math.log(12)}}, [16, 8, 0, 0, 0, 12]),
        ({"top_k": 4, "top_p": 0.9, "min_p": 0.2}, [16, 8, 4, 0, 0, 0]),
    ],
)
def test_the_distribution_drawn_from(values: dict[str, Any], weights: list[float]) -> None:
    logits = torch.tensor([SIX] * 5000)
    counts = [0] * 6
    for start in range(0, NUM_DRAWS, 5000):
        rows = [row(seed=99, position=start + i, **values) for i in range(5000)]
        for sampled in Sampler(6).sample(logits, rows):
            counts[sampled.token_id] += 1
    expected = [NUM_DRAWS * w / sum(weights) for w in weights]
    assert all(count == 0 for count, mean in zip(counts, expected, strict=True) if mean == 0)
    chi = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True) if mean)
    assert chi < CHI_LIMITS[sum(w > 0 for w in weights) - 1]


def mixed_rows(num: int) -> list[SampleRow]:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.8},
        {"temperature": 1.3, "top_p": 0.9},
        {"top_k": 40, "min_p": 0.02},
        {"temperature": 0.0, "logit_bias": {3: 50}},
        {"top_p": 0.5, "repetition_penalty": 1.3},
        {"top_k": 1},
    ]
    return [row(seed=i, position=3 * i, **kinds[i % len(kinds)]) for i in range(num)]


def test_a_row_draws_the_same_token_in_any_batch() -> None:
    vocab_size = 20_011  # not a multiple of anything
    logits = torch.randn(28, vocab_size, generator=torch.Generator().manual_seed(0)) * 2
    before = logits.clone()
    rows = mixed_rows(28)
    sampler = Sampler(vocab_size)
    together = sampler.sample(logits, rows)
    assert torch.equal(logits, before)
    assert [sampler.sample(logits[i : i + 1], rows[i : i + 1])[0] for i in range(28)] == together
    order = list(range(0, 28, 3))[::-1]
    assert sampler.sample(logits[order], [rows[i] for i in order]) == [together[i] for i in order]
    other_seed = [row(seed=1000 + i, position=r.position, temperature=1.0) for i, r in enumerate(rows)]
    assert sampler.sample(logits, other_seed) != sampler.sample(logits, [row(seed=2000 + i) for i in range(28)])


def test_greedy_is_the_first_maximum() -> None:
    logits = torch.tensor([[0.0, 5, 5, 1], [3, 0, 0, 3]])
    sampler = Sampler(4)
    assert [s.token_id for s in sampler.sample(logits, [row(temperature=0), row(top_k=1, temperature=9)])] == [1, 0]
    biased = row(temperature=0, logit_bias={3: 10})
    assert [s.token_id for s in sampler.sample(logits, [row(temperature=0), biased])] == [1, 3]


def test_padded_ids_are_never_drawn() -> None:
    logits = torch.tensor([[0.0, 1, 99, 99]] * 300)
    sampler = Sampler(4, num_valid_ids=2)
    rows = [row(seed=i, temperature=i % 2, logprobs=LogprobParams(True, top_num=4)) for i in range(300)]
    sampled = sampler.sample(logits, rows)
    assert {s.token_id for s in sampled} == {0, 1}
    assert all({token_id for token_id, _ in s.logprob.top} == {0, 1} for s in sampled if s.logprob)
    assert all(s.token_id == 1 for s in sampled[::2])


def test_logprobs_are_those_of_the_raw_logits_and_only_where_wanted() -> None:
    logits = torch.tensor([SIX] * 3)
    wanted = LogprobParams(True, top_num=2, token_ids=(5, 0))
    rows = [
        row(temperature=0.2, logit_bias={4: 100}, logprobs=wanted),
        row(temperature=0),
        row(temperature=0, logprobs=LogprobParams(True)),
    ]
    first, second, third = Sampler(6).sample(logits, rows)
    assert first.token_id == 4 and first.logprob is not None
    assert first.logprob.logprob == pytest.approx(math.log(1 / 32), abs=1e-5)
    assert [i for i, _ in first.logprob.top] == [0, 1]
    assert [v for _, v in first.logprob.top] == pytest.approx([math.log(1 / 2), math.log(1 / 4)], abs=1e-5)
    assert [i for i, _ in first.logprob.picked] == [5, 0]
    assert [v for _, v in first.logprob.picked] == pytest.approx([math.log(1 / 32), math.log(1 / 2)], abs=1e-5)
    assert second.logprob is None
    assert third.logprob is not None and third.logprob.top == () and third.logprob.picked == ()


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("width", [1, 5, 128, 129, 1000])
def test_the_ends_of_the_unit_interval_draw_ids_that_may_be_drawn(number: float, width: int) -> None:
    logits = torch.randn(1, width, generator=torch.Generator().manual_seed(width))
    logits[0, 1:3] = -math.inf
    logits[0, -1] = -math.inf if width > 4 else 0.0
    may = torch.isfinite(logits[0])
    assert may[draw(logits, [number])[0]]


def test_drawing_inverts_the_cumulative_sum() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 777, generator=generator)
    mass = (logits[0] - logits.max()).exp().double().cumsum(0)
    numbers = torch.rand(500, generator=generator, dtype=torch.float64)
    expected = torch.searchsorted(mass, numbers * mass[-1], right=True).tolist()
    assert draw(logits.expand(500, 777).clone(), numbers.tolist()) == expected


def test_faults_of_the_caller_are_not_sampled() -> None:
    sampler = Sampler(4)
    for temperature in (0.0, 1.0):
        with pytest.raises(AssertionError, match="no token to draw"):
            sampler.sample(torch.full((1, 4), math.nan), [row(temperature=temperature)])
        nothing = SampleRow(SamplingParams(temperature=temperature), LogprobParams(), (), (), 0, 0, (), torch.zeros(4, dtype=torch.bool))
        with pytest.raises(AssertionError, match="no token to draw"):
            sampler.sample(torch.zeros(1, 4), [nothing])
    with pytest.raises(AssertionError, match="float32"):
        sampler.sample(torch.zeros(1, 4, dtype=torch.bfloat16), [row()])
    with pytest.raises(AssertionError, match="1 rows of 4"):
        sampler.sample(torch.zeros(2, 4), [row()])
    assert sampler.sample(torch.zeros(0, 4), []) == []
