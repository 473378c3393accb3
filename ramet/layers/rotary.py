"""Rotary positions (RoFormer, arXiv 2104.09864) and the ways to stretch them beyond the trained length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """`kind` is a key of `ROPE_KINDS`; `scaling` holds the parameters of that kind under Hugging Face's names.

    `max_len` is the model's max_position_embeddings, `context_len` the longest request that is served.
    """

    head_dim: int
    theta: float
    max_len: int
    context_len: int
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RopeKind:
    """Parameters that must be given, and the function from settings to frequencies [head_dim / 2] float32 and a factor on cos and sin."""

    required: tuple[str, ...]
    frequencies: Callable[[RopeSettings], tuple[Tensor, float]]


class Rotary:
    """cos and sin of the positions of a step, and the rotation of heads by them.

    Pairs are (i, i + head_dim / 2), as Hugging Face stores the weights. Tables are float32 and rounded to the dtype of the heads.
    """

    def __init__(self, settings: RopeSettings, dtype: torch.dtype, device: torch.device) -> None:
        frequencies, self._factor = ROPE_KINDS[settings.kind].frequencies(settings)
        self._frequencies = frequencies.to(device)
        self._dtype = dtype
        self._half = settings.head_dim // 2

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and signed sin of positions [n] int64, each [n, 1, head_dim]; made once a step."""
        angles = positions.float().unsqueeze(1) * self._frequencies
        cos, sin = angles.cos() * self._factor, angles.sin() * self._factor
        both = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        return both[0].to(self._dtype).unsqueeze(1), both[1].to(self._dtype).unsqueeze(1)

    def rotate_(self, heads: Tensor, tables: tuple[Tensor, Tensor]) -> None:
        """Rotate heads [n, num_heads, head_dim] in place."""
        cos, signed_sin = tables
        swapped = heads.roll(self._half, -1)
        heads.mul_(cos).addcmul_(swapped, signed_sin)


def _plain(head_dim: int, theta: float) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


def _default(settings: RopeSettings) -> tuple[Tensor, float]:
    return _plain(settings.head_dim, settings.theta), 1.0


def _linear(settings: RopeSettings) -> tuple[Tensor, float]:
    return _plain(settings.head_dim, settings.theta) / settings.scaling["factor"], 1.0


def _dynamic(settings: RopeSettings) -> tuple[Tensor, float]:
    """The base grows with the length. The length is that of the longest request served, for all: keys that are cached must mean the same
    in every request, so they cannot depend on how long one of them becomes."""
    dim, factor = settings.head_dim, settings.scaling["factor"]
    length = max(settings.context_len, settings.max_len)
    growth = factor * length / settings.max_len - (factor - 1)
    return _plain(dim, settings.theta * growth ** (dim / (dim - 2))), 1.0


def _llama3(settings: RopeSettings) -> tuple[Tensor, float]:
    """Long waves are stretched, short ones kept, a blend between (Llama 3.1)."""
    scaling = settings.scaling
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    plain = _plain(settings.head_dim, settings.theta)
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # of a wave over the trained length
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * ((1 - blend) / factor + blend), 1.0


def _yarn(settings: RopeSettings) -> tuple[Tensor, float]:
    """YaRN (arXiv 2309.00071): stretched below one rotation, kept above 32, a ramp between; and a temperature on the scores."""
    scaling, dim = settings.scaling, settings.head_dim
    original_len = scaling["original_max_position_embeddings"]
    factor = scaling.get("factor") or settings.max_len / original_len
    low = _yarn_dim(scaling.get("beta_fast") or 32, dim, settings.theta, original_len)
    high = _yarn_dim(scaling.get("beta_slow") or 1, dim, settings.theta, original_len)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / ((high - low) or 0.001)).clamp(0, 1)
    plain = _plain(dim, settings.theta)
    return plain / factor * ramp + plain * (1 - ramp), _yarn_temperature(factor, scaling)


def _yarn_dim(num_rotations: float, dim: int, theta: float, original_len: int) -> float:
    """The dimension whose wave turns so many times over the trained length."""
    return dim * math.log(original_len / (num_rotations * 2 * math.pi)) / (2 * math.log(theta))


def _yarn_temperature(factor: float, scaling: Mapping[str, Any]) -> float:
    def of(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return of(mscale) / of(mscale_all_dim) if mscale and mscale_all_dim else of(1)


ROPE_KINDS: Final[Mapping[str, RopeKind]] = {
    "default": RopeKind((), _default),
    "linear": RopeKind(("factor",), _linear),
    "dynamic": RopeKind(("factor",), _dynamic),
    "llama3": RopeKind(("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), _llama3),
    "yarn": RopeKind(("original_max_position_embeddings",), _yarn),
}
