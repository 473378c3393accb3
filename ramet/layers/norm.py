"""Root-mean-square normalisation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ramet.layers.placement import Places, Storage, copy_into


class RMSNorm:
    """x / sqrt(mean(x**2) + eps) * weight over the last dimension, computed in float32 and rounded once."""

    def __init__(self, size: int, eps: float, storage: Storage) -> None:
        self.weight = storage.empty(size)
        self._shape = (size,)
        self._eps = eps

    def places(self) -> Places:
        """The one tensor, named `weight`."""
        return {"weight": copy_into(self.weight)}

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., size]; does not change it."""
        return F.rms_norm(x, self._shape, self.weight, self._eps)
