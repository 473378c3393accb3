"""The record in which every weight format hands over a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Affine4:
    """A matrix in four bits, exactly as the file holds it: `weight = q * scale + minimum` in float32, group by group."""

    q: torch.Tensor  # [out, in] uint8, values 0..15
    scale: torch.Tensor  # [out, in / group_size] float32
    minimum: torch.Tensor  # [out, in / group_size] float32
    group_size: int = 32


def _no_packed_form() -> Affine4 | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class NamedWeight:
    """One tensor of a checkpoint under its Hugging Face name; no data is read before `load` or `affine4` is called.

    `load()` gives the tensor in the dtype that was asked for. It may share the mapped file: copy it to where it shall live, do not write to
    it. `affine4()` gives the four-bit form when the file holds the tensor in Q4_0 or Q4_1, else None; `load` is that form multiplied out.
    """

    name: str
    shape: tuple[int, ...]
    load: Callable[[], torch.Tensor]
    affine4: Callable[[], Affine4 | None] = _no_packed_form
