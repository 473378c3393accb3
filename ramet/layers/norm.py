"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ramet.layers.placement import Place, Places, Storage
from ramet.weights import NamedWeight


class RMSNorm:
    """x / sqrt(mean(x**2) + eps) * weight over the last dimension, computed in float32 and rounded once."""

    def __init__(self, size: int, eps: float, storage: Storage) -> None:
        self._weight = storage.empty(size)
        self._full_weight = torch.empty(size, dtype=torch.float32, device=storage.device)
        self._size = size
        self._eps = eps
        self._eps_tensor = torch.tensor(eps, dtype=torch.float32, device=storage.device)

    def places(self) -> Places:
        """The one tensor, named `weight`."""
        return {"weight": Place((self._size,), self._store)}

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., size]; does not change it."""
        if x.is_cuda:
            return F.rms_norm(x, (self._size,), self._weight, self._eps)
        # torch has no kernel of its own for this on a CPU: it runs thirteen small ones, which takes twice as long as these seven.
        full = x.float()
        norm = torch.linalg.vector_norm(full, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps_tensor, norm, norm, value=1 / self._size).rsqrt_()
        return (full * scale).mul_(self._full_weight).to(x.dtype)

    def _store(self, weight: NamedWeight) -> None:
        self._weight.copy_(weight.load())
        self._full_weight.copy_(self._weight)
