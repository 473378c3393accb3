"""Extra packed copies of weight matrices, for steps of few tokens on a CPU: there the time is that of reading the weights.

int4   exact: what the file holds in four bits stays in four bits; only scale and zero are rounded to bfloat16, where the plain copy
       rounds every weight
int8   lossy: a row of weights becomes 8-bit numbers and one scale
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from ramet.weights import Affine4

INT4_ROW_MULTIPLE: Final = 16  # the kernel's block of output rows
INT8_MULTIPLE: Final = 32  # of both sides: the kernel reads whole vectors without a check
# Tokens up to which the packed kernel is faster than bfloat16 (SmolLM2-135M shapes, AMX, 2 threads, all linear layers of a step in ms):
# int4 7 / 10 / 12 / 15 / 27 at 1 / 2 / 4 / 8 / 16 tokens, bfloat16 22-24 throughout.
INT4_MAX_TOKENS: Final = 8
INT8_MAX_TOKENS: Final = 4


class PackedWeight(Protocol):
    """A packed matrix [out, in]."""

    @property
    def max_tokens(self) -> int:
        """The most tokens for which it is faster than the plain copy."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """x [n, in] bfloat16 to x @ weight.T [n, out] bfloat16."""
        ...


class Int4Weight:
    """Groups of four-bit numbers with a bfloat16 scale and zero each."""

    max_tokens: Final = INT4_MAX_TOKENS

    def __init__(self, parts: Sequence[Affine4]) -> None:
        """Matrices stacked by rows; all have the same group size."""
        q = torch.cat([part.q for part in parts]).to(torch.int32)
        scale = torch.cat([part.scale for part in parts])
        zero = torch.cat([part.minimum for part in parts]) + 8 * scale  # the kernel computes (q - 8) * scale + zero
        self._group_size = parts[0].group_size
        self._weight: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 2)
        self._scale_and_zero = torch.stack((scale, zero), dim=-1).transpose(0, 1).contiguous().to(torch.bfloat16)

    def __call__(self, x: Tensor) -> Tensor:
        """See `PackedWeight`."""
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self._weight, self._group_size, self._scale_and_zero)
        return out


class Int8Weight:
    """Rows of 8-bit numbers with a bfloat16 scale each; the error of a weight is at most 1/250 of its row's largest."""

    max_tokens: Final = INT8_MAX_TOKENS

    def __init__(self, weight: Tensor) -> None:
        full = weight.float()
        self._scale = (full.abs().amax(1).clamp(min=1e-12) / 127).to(torch.bfloat16)
        self._weight = (full / self._scale.float().unsqueeze(1)).round_().clamp_(-127, 127).to(torch.int8)

    def __call__(self, x: Tensor) -> Tensor:
        """See `PackedWeight`."""
        return torch._weight_int8pack_mm(x, self._weight, self._scale)


def can_pack_int4(parts: Sequence[Affine4 | None], num_rows: int) -> bool:
    """Whether the stacked matrix has a four-bit form that the kernel takes."""
    sizes = {None if part is None else part.group_size for part in parts}
    return len(sizes) == 1 and None not in sizes and num_rows % INT4_ROW_MULTIPLE == 0


def can_pack_int8(weight: Tensor) -> bool:
    """Whether the kernel takes a matrix of this shape."""
    return weight.shape[0] % INT8_MULTIPLE == 0 and weight.shape[1] % INT8_MULTIPLE == 0
