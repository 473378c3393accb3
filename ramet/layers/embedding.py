"""The vocabulary at both ends: ids to vectors and, where the head is tied, vectors to logits."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ramet.layers.matrix import Matrix
from ramet.layers.placement import Place, Places, Storage
from ramet.weights import NamedWeight


class Embedding:
    """ids [n] int64 to vectors [n, hidden_size]; with `is_head` the same weights also give logits."""

    def __init__(self, vocab_size: int, hidden_size: int, storage: Storage, *, is_head: bool) -> None:
        self._weight = storage.empty(vocab_size, hidden_size)
        self._head = Matrix(self._weight) if is_head else None
        self._packed_weights = storage.packed_weights

    def places(self) -> Places:
        """The one tensor, named `weight`."""
        return {"weight": Place(tuple(self._weight.shape), self._store)}

    def __call__(self, token_ids: Tensor) -> Tensor:
        """A copy of the rows."""
        return F.embedding(token_ids, self._weight)

    def logits(self, x: Tensor) -> Tensor:
        """x [n, hidden_size] to [n, vocab_size]."""
        assert self._head is not None, "this model has a head of its own"
        return self._head.multiply(x)

    def _store(self, weight: NamedWeight) -> None:
        self._weight.copy_(weight.load())
        if self._head is not None:
            # Ids are looked up in the plain weights. Four bits are for blocks: files keep the vocabulary in more.
            packed_weights = "auto" if self._packed_weights == "int4" else self._packed_weights
            self._head.pack(packed_weights, [None], keeps_plain=True)
