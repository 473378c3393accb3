"""The block formats of GGUF, multiplied out in torch.

Each format is a row of `FORMATS`: how many weights and bytes a block has, and a function from raw blocks [num_blocks, block_bytes] uint8
to weights [num_blocks, block_len] float32. The arithmetic is that of the format's definition, so results are exact to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from ramet.weights.named import Affine4

_CHUNK_LEN: Final = 1 << 22  # weights multiplied out at a time: the float32 copy stays near the caches and small beside the result


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One quantisation type of GGUF."""

    name: str
    block_len: int
    block_bytes: int
    decode: Callable[[torch.Tensor], torch.Tensor]


def dequantize(raw: torch.Tensor, form: BlockFormat, dtype: torch.dtype) -> torch.Tensor:
    """Rows of blocks [rows, row_bytes] uint8 to weights [rows, row_len] of the dtype; does not change `raw`."""
    num_rows, row_bytes = raw.shape
    row_len = row_bytes // form.block_bytes * form.block_len
    out = torch.empty(num_rows, row_len, dtype=dtype)
    step = max(1, _CHUNK_LEN // max(1, row_len))
    for start in range(0, num_rows, step):
        rows = raw[start : start + step]
        out[start : start + step] = form.decode(rows.reshape(-1, form.block_bytes)).view(len(rows), row_len)
    return out


def affine4(raw: torch.Tensor, form: BlockFormat) -> Affine4 | None:
    """The four-bit form of rows of Q4_0 or Q4_1 blocks [rows, row_bytes] uint8; None for every other format."""
    if form.name not in ("Q4_0", "Q4_1"):
        return None
    num_rows = len(raw)
    blocks = raw.reshape(-1, form.block_bytes)
    scale = _half(blocks, 0)
    minimum = scale * -8 if form.name == "Q4_0" else _half(blocks, 2)
    q = _nibbles(blocks[:, form.block_bytes - 16 :])
    return Affine4(q.view(num_rows, -1), scale.view(num_rows, -1), minimum.view(num_rows, -1))


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a byte of every block, as float32 [num_blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[..., n] bytes to [..., 2n] values 0..15: all low halves, then all high halves."""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 4] bytes to [num_blocks, 32] values 0 or 1, lowest bit first."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((packed.unsqueeze(-1) >> shifts) & 1).flatten(1)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (_nibbles(blocks[:, 2:]).float() - 8) * _half(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks[:, 4:]).float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    q = _nibbles(blocks[:, 6:]) | (_bits(blocks[:, 2:6]) << 4)
    return (q.float() - 16) * _half(blocks, 0)


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    q = _nibbles(blocks[:, 8:]) | (_bits(blocks[:, 4:8]) << 4)
    return q.float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and minima of the 8 sub-blocks of Q4_K and Q5_K, float32 [num_blocks, 8, 1].

    Twelve bytes hold 8 + 8 values of six bits: the first four of each whole, the last four split into four low bits and two high bits.
    """
    low_scale, low_min, mixed = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat((low_scale & 63, (mixed & 15) | ((low_scale >> 6) << 4)), dim=1)
    minimum = torch.cat((low_min & 63, (mixed >> 4) | ((low_min >> 6) << 4)), dim=1)
    return (_half(blocks, 0) * scale.float()).unsqueeze(-1), (_half(blocks, 2) * minimum.float()).unsqueeze(-1)


def _k_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 128] bytes to [num_blocks, 8, 32] values: every 32 bytes are two sub-blocks."""
    return _nibbles(packed.reshape(-1, 4, 32)).view(-1, 8, 32)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    scale, minimum = _k_scales(blocks)
    return _k_nibbles(blocks[:, 16:]).float().mul_(scale).sub_(minimum).flatten(1)


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    scale, minimum = _k_scales(blocks)
    planes = torch.arange(8, dtype=torch.uint8).view(8, 1)  # bit j of byte i belongs to weight i of sub-block j
    high = (blocks[:, 16:48].unsqueeze(1) >> planes) & 1
    q = _k_nibbles(blocks[:, 48:]) | (high << 4)
    return q.float().mul_(scale).sub_(minimum).flatten(1)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    pairs = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> pairs) & 3
    q = (low | (high << 4)).float() - 32
    scale = _half(blocks, 208) * blocks[:, 192:208].contiguous().view(torch.int8).float()
    return q.view(-1, 16, 16).mul_(scale.unsqueeze(-1)).flatten(1)


def _plain(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda blocks: blocks.contiguous().view(dtype).float()


FORMATS: Final[Mapping[int, BlockFormat]] = {
    0: BlockFormat("F32", 1, 4, _plain(torch.float32)),
    1: BlockFormat("F16", 1, 2, _plain(torch.float16)),
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k),
    30: BlockFormat("BF16", 1, 2, _plain(torch.bfloat16)),
}

# Types that are known by name only, for the error that refuses them.
OTHER_NAMES: Final[Mapping[int, str]] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
