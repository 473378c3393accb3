"""Linear layers. Projections that read the same input are one matrix; each part keeps its own name in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ramet.errors import ConfigError
from ramet.layers.matrix import Matrix
from ramet.layers.placement import Place, Places, Storage
from ramet.weights import Affine4, NamedWeight


class Linear:
    """x [n, in_features] to [n, sum of the parts]: the parts (name to rows) stand one after another.

    Packed when the last part has been stored, as `Storage.packed_weights` says; raises ConfigError then if int4 is asked for and the
    checkpoint holds no four-bit form.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], *, has_bias: bool, storage: Storage) -> None:
        self._parts = dict(parts)
        num_rows = sum(parts.values())
        self._matrix = Matrix(storage.empty(num_rows, in_features))
        self._bias = storage.empty(num_rows) if has_bias else None
        self._packed_weights = storage.packed_weights
        self._four_bit: dict[str, Affine4 | None] = {}
        self._multiply = self._matrix.multiply

    def places(self) -> Places:
        """Name of a part plus `.weight` or `.bias` to its place."""
        places: dict[str, Place] = {}
        first = 0
        for name, num_rows in self._parts.items():
            rows = slice(first, first + num_rows)
            places[f"{name}.weight"] = Place((num_rows, self._matrix.shape[1]), self._store(name, rows))
            if self._bias is not None:
                places[f"{name}.bias"] = Place((num_rows,), _store_rows(self._bias, rows))
            first += num_rows
        return places

    def __call__(self, x: Tensor) -> Tensor:
        """The product; does not change x."""
        out = self._multiply(x)
        return out if self._bias is None else out.add_(self._bias)

    def _store(self, name: str, rows: slice) -> Callable[[NamedWeight], None]:
        def store(weight: NamedWeight) -> None:
            assert self._matrix.plain is not None, "all parts are stored before the matrix is packed"
            self._matrix.plain[rows].copy_(weight.load())
            four_bit = weight.affine4() if self._packed_weights in ("auto", "int4") else None
            if self._packed_weights == "int4" and four_bit is None:
                way_out = "the checkpoint does not hold it in four bits; use a GGUF file in Q4_0 or Q4_1, or packed_weights=auto"
                raise ConfigError("packed_weights", "int4", f"{weight.name}: {way_out}")
            self._four_bit[name] = four_bit
            if len(self._four_bit) == len(self._parts):
                self._matrix.pack(self._packed_weights, [self._four_bit[part] for part in self._parts])
                self._four_bit.clear()

        return store


def _store_rows(target: Tensor, rows: slice) -> Callable[[NamedWeight], None]:
    def store(weight: NamedWeight) -> None:
        target[rows].copy_(weight.load())

    return store
