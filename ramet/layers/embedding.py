"""The vocabulary at both ends: ids to vectors, vectors to logits."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ramet.layers.placement import Places, Storage, copy_into


class Embedding:
    """ids [n] int64 to vectors [n, hidden_size]."""

    def __init__(self, vocab_size: int, hidden_size: int, storage: Storage) -> None:
        self.weight = storage.empty(vocab_size, hidden_size)

    def places(self) -> Places:
        """The one tensor, named `weight`."""
        return {"weight": copy_into(self.weight)}

    def __call__(self, token_ids: Tensor) -> Tensor:
        """A copy of the rows."""
        return F.embedding(token_ids, self.weight)

    def logits(self, x: Tensor) -> Tensor:
        """x [n, hidden_size] to [n, vocab_size], with the same weights (a tied head)."""
        return F.linear(x, self.weight)
