"""One weight matrix in the forms that its products need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch.nn.functional as F
from torch import Tensor

from ramet.errors import ConfigError
from ramet.layers.packed import DenseWeight, Int4Weight, Int8Weight, PackedWeight, can_pack_dense, can_pack_int4, can_pack_int8
from ramet.weights import Affine4

# Tokens up to which a form is faster than the dense one. All linear layers of a step of SmolLM2-135M on 2 threads with AMX take, in ms,
#   four bits   5.6   6.4   8.7  15.0  28.0
#   int8       10.5  11.8  13.9  23.7  37.6
#   dense      14.2  13.8  14.6  13.9  14.6    (17 at 32 tokens, 160 at 1000)
#   plain      17.7  19.0  23.7  18.6  21.0    (23 and 260)        at 1, 2, 4, 8 and 16 tokens.
INT4_MAX_TOKENS: Final = 6
INT8_MAX_TOKENS: Final = 4


class Matrix:
    """Weights [out, in] that are filled in once and then only multiplied by.

    `plain` is writable until `pack` is called, which may drop it for a form that takes its place.
    """

    def __init__(self, plain: Tensor) -> None:
        self.shape = tuple(plain.shape)
        self.plain: Tensor | None = plain
        self._dense: PackedWeight | None = None
        self._small: PackedWeight | None = None
        self._max_small_tokens = 0

    def pack(self, packed_weights: str, four_bit: Sequence[Affine4 | None], *, keeps_plain: bool = False) -> None:
        """Make the forms that the engine option asks for; `four_bit` are the parts as the file holds them, stacked by rows.

        Raises ConfigError for int4 when there is no four-bit form. `keeps_plain` is for weights that are read otherwise, too.
        """
        assert self.plain is not None, "a matrix is packed once"
        if packed_weights == "off":
            return
        parts = [part for part in four_bit if part is not None]
        if packed_weights in ("auto", "int4") and can_pack_int4(four_bit, self.shape[0]):
            self._small, self._max_small_tokens = Int4Weight(parts), INT4_MAX_TOKENS
        elif packed_weights == "int4":
            raise ConfigError("packed_weights", "int4", f"a matrix of {self.shape[0]} rows is not one for the four-bit kernel; use auto")
        elif packed_weights == "int8" and can_pack_int8(self.plain):
            self._small, self._max_small_tokens = Int8Weight(self.plain), INT8_MAX_TOKENS
        if can_pack_dense():
            self._dense = DenseWeight(self.plain)
            self.plain = self.plain if keeps_plain else None

    def multiply(self, x: Tensor) -> Tensor:
        """x [n, in] to x @ weight.T [n, out]; does not change x."""
        if x.shape[0] <= self._max_small_tokens and self._small is not None:
            return self._small(x)
        if self._dense is not None:
            return self._dense(x)
        assert self.plain is not None, "a matrix has one form at least"
        return F.linear(x, self.plain)
