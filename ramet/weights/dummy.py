"""Seeded random weights, for shapes without a checkpoint."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import torch

from ramet.weights.named import NamedWeight

STD: Final = 0.02
_CHUNK_LEN: Final = 1 << 22
_HALF_RANGE: Final = 2**15
_UNIT_STD: Final = math.sqrt((2**32 - 1) / 12) / _HALF_RANGE  # standard deviation of a uniform int16, in units of its half range


def iterate_dummy(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, seed: int) -> Iterator[NamedWeight]:
    """A weight for each name: ones for norms, else uniform with mean 0 and standard deviation 0.02.

    The values depend on (seed, name, shape) alone: not on the order, the dtype (up to rounding) or the machine.
    """
    for name, shape in shapes.items():
        yield NamedWeight(name, tuple(shape), _Filler(name, tuple(shape), dtype, seed))


class _Filler:
    """Makes one tensor on demand."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
        self._name, self._shape, self._dtype, self._seed = name, shape, dtype, seed

    def __call__(self) -> torch.Tensor:
        if self._name.endswith("norm.weight"):
            return torch.ones(self._shape, dtype=self._dtype)
        digest = hashlib.blake2b(f"{self._seed}:{self._name}".encode(), digest_size=16).digest()
        bits = np.random.SFC64(int.from_bytes(digest, "little"))
        flat = torch.empty(math.prod(self._shape), dtype=self._dtype)
        # Sixteen random bits a weight, not a normal draw of 64: a model of 7 billion weights fills in seconds.
        for start in range(0, len(flat), _CHUNK_LEN):
            part = flat[start : start + _CHUNK_LEN]
            words = bits.random_raw(-(-len(part) // 4)).astype("<u8", copy=False).view("<i2")
            part.copy_(torch.from_numpy(words[: len(part)]).float().add_(0.5).mul_(STD / _UNIT_STD / _HALF_RANGE))
        return flat.view(self._shape)
