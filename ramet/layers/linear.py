"""Matrix products. Projections that read the same input are one matrix; each part keeps its own name in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor

from ramet.errors import ConfigError
from ramet.layers.packed import Int4Weight, Int8Weight, PackedWeight, can_pack_int4, can_pack_int8
from ramet.layers.placement import Place, Places, Storage
from ramet.weights import Affine4, NamedWeight


class Linear:
    """x [n, in_features] to [n, sum of the parts]: the parts (name to rows) stand one after another.

    On a CPU in bfloat16 a packed copy may stand beside the weight (`Storage.packed_weights`), used for steps of few tokens; it is made
    when the last part has been stored. Raises ConfigError while loading if int4 is asked for and the checkpoint has no four-bit form.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], *, has_bias: bool, storage: Storage) -> None:
        self._parts = dict(parts)
        num_rows = sum(parts.values())
        self.weight = storage.empty(num_rows, in_features)
        self.bias = storage.empty(num_rows) if has_bias else None
        self._packing = storage.packed_weights
        self._four_bit: dict[str, Affine4 | None] = {}
        self._missing = set(parts)
        self._packed: PackedWeight | None = None
        self._max_packed_tokens = 0

    def places(self) -> Places:
        """Name of a part plus `.weight` or `.bias` to its place."""
        places: dict[str, Place] = {}
        first = 0
        for name, num_rows in self._parts.items():
            rows = slice(first, first + num_rows)
            places[f"{name}.weight"] = Place((num_rows, self.weight.shape[1]), self._store(name, rows))
            if self.bias is not None:
                places[f"{name}.bias"] = Place((num_rows,), _store_rows(self.bias, rows))
            first += num_rows
        return places

    def __call__(self, x: Tensor) -> Tensor:
        """The product; does not change x."""
        if self._packed is None or x.shape[0] > self._max_packed_tokens:
            return F.linear(x, self.weight, self.bias)
        out = self._packed(x)
        return out if self.bias is None else out.add_(self.bias)

    def _store(self, name: str, rows: slice) -> Callable[[NamedWeight], None]:
        def store(weight: NamedWeight) -> None:
            self.weight[rows].copy_(weight.load())
            if self._packing in ("auto", "int4"):
                self._four_bit[name] = weight.affine4()
                if self._packing == "int4" and self._four_bit[name] is None:
                    way_out = "the checkpoint does not hold it in four bits; use a GGUF file in Q4_0 or Q4_1, or packed_weights=auto"
                    raise ConfigError("packed_weights", "int4", f"{weight.name}: {way_out}")
            self._missing.discard(name)
            if not self._missing:
                self._pack()

        return store

    def _pack(self) -> None:
        parts = [part for name in self._parts if (part := self._four_bit.get(name)) is not None]
        if self._packing in ("auto", "int4") and len(parts) == len(self._parts) and can_pack_int4(parts, len(self.weight)):
            self._packed = Int4Weight(parts)
        elif self._packing == "int4":
            rows = f"{' + '.join(self._parts)} has {len(self.weight)} rows"
            raise ConfigError("packed_weights", "int4", f"{rows}, which the four-bit kernel does not take; use auto")
        elif self._packing == "int8" and can_pack_int8(self.weight):
            self._packed = Int8Weight(self.weight)
        self._four_bit.clear()
        self._max_packed_tokens = 0 if self._packed is None else self._packed.max_tokens


def _store_rows(target: Tensor, rows: slice) -> Callable[[NamedWeight], None]:
    def store(weight: NamedWeight) -> None:
        target[rows].copy_(weight.load())

    return store
