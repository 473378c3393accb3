"""Forms of a weight matrix that a CPU multiplies faster than the plain one.

    dense  the bfloat16 weights in the order that oneDNN's kernels read; the same numbers, for steps of any size
    int4   what the file holds in four bits stays in four bits; scale and zero of a group are rounded, where bfloat16 rounds every weight
    int8   lossy: a row of weights becomes 8-bit numbers and one scale

Steps of few tokens are as long as it takes to read the weights, so int4 and int8 serve those and dense serves the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from ramet.weights import Affine4

INT4_ROW_MULTIPLE: Final = 16  # the kernel's block of output rows
INT8_MULTIPLE: Final = 32  # of both sides: the kernel reads whole vectors without a check
_DENSE_ROWS_HINT: Final = 32  # tokens that the order is chosen for


class PackedWeight(Protocol):
    """A packed matrix [out, in]."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [n, in] bfloat16 to x @ weight.T [n, out] bfloat16."""
        ...


class DenseWeight:
    """Bfloat16 weights in oneDNN's own order."""

    def __init__(self, weight: Tensor) -> None:
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _DENSE_ROWS_HINT)

    def __call__(self, x: Tensor) -> Tensor:
        """See `PackedWeight`."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return out


class Int4Weight:
    """Groups of four-bit numbers with a bfloat16 scale and zero each."""

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

    def __init__(self, weight: Tensor) -> None:
        full = weight.float()
        self._scale = (full.abs().amax(1).clamp(min=1e-12) / 127).to(torch.bfloat16)
        self._weight = (full / self._scale.float().unsqueeze(1)).round_().clamp_(-127, 127).to(torch.int8)

    def __call__(self, x: Tensor) -> Tensor:
        """See `PackedWeight`."""
        return torch._weight_int8pack_mm(x, self._weight, self._scale)


def can_pack_dense() -> bool:
    """Whether this build of torch and this CPU multiply bfloat16 through oneDNN."""
    return bool(torch.backends.mkldnn.enabled) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def can_pack_int4(parts: Sequence[Affine4 | None], num_rows: int) -> bool:
    """Whether the stacked matrix has a four-bit form that the kernel takes."""
    sizes = {None if part is None else part.group_size for part in parts}
    return len(sizes) == 1 and None not in sizes and num_rows % INT4_ROW_MULTIPLE == 0


def can_pack_int8(weight: Tensor) -> bool:
    """Whether the kernel takes a matrix of this shape."""
    return weight.shape[0] % INT8_MULTIPLE == 0 and weight.shape[1] % INT8_MULTIPLE == 0
