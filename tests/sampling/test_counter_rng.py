from __future__ import annotations

from itertools import pairwise

from ramet.sampling.counter_rng import uniform

NUM_BINS = 20
KNOWN = [0.6524484863740322, 0.7012121095215252, 0.36818951565166946, 0.7238582745899125, 0.39854775898749717]


def chi_square(counts: list[int]) -> float:
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 / mean for count in counts)


def test_known_values_never_change() -> None:
    # A stored seed must give the same text in every later version.
    assert [uniform(*key) for key in ((0, 0), (0, 1), (1, 0), (-1, 7), (2**63 - 1, 10**6))] == KNOWN


def test_range_and_signed_seeds() -> None:
    assert all(0 <= uniform(seed, position) < 1 for seed in (-(2**63), -1, 0, 2**63 - 1, 2**64 - 1) for position in range(200))
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)


def test_uniform_along_positions_and_along_seeds() -> None:
    # 19 degrees of freedom: 43.8 is exceeded once in a thousand.
    for numbers in ([uniform(17, i) for i in range(20_000)], [uniform(i, 17) for i in range(20_000)]):
        counts = [0] * NUM_BINS
        for number in numbers:
            counts[int(number * NUM_BINS)] += 1
        assert chi_square(counts) < 43.8


def test_neighbours_are_independent() -> None:
    # 99 degrees of freedom: 148 is exceeded once in a thousand.
    along_positions = list(pairwise(uniform(5, i) for i in range(20_001)))
    along_seeds = list(pairwise(uniform(i, 5) for i in range(20_001)))
    shifted = [(uniform(i, 9), uniform(i + 1, 8)) for i in range(20_000)]
    for pairs in (along_positions, along_seeds, shifted):
        counts = [0] * 100
        for x, y in pairs:
            counts[int(x * 10) * 10 + int(y * 10)] += 1
        assert chi_square(counts) < 148


def test_no_number_comes_twice() -> None:
    assert len({uniform(seed, position) for seed in range(200) for position in range(200)}) == 40_000
