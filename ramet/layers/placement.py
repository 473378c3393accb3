"""Where the tensors of a checkpoint go: each layer says which names it takes, of which shape, and how it stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.weights import NamedWeight


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor of the checkpoint that a layer waits for."""

    shape: tuple[int, ...]
    store: Callable[[NamedWeight], None]


Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Storage:
    """How a model's tensors are held. `packed_weights` is the engine option of that name."""

    dtype: torch.dtype
    device: torch.device
    packed_weights: str = "off"

    def empty(self, *shape: int) -> Tensor:
        """Room for a tensor."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)
