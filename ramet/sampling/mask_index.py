"""Masks as lists of ids: on a CPU a list of the fewer ones, allowed or forbidden, costs a tenth of a pass over all booleans."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

_MAX_KEPT: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class IndexedMask:
    """`mask` is bool [width], True where a token may be drawn; `ids` int64 are those that may (`are_allowed`) or those that may not."""

    mask: Tensor
    ids: Tensor
    are_allowed: bool
    num_allowed: int

    def forbid(self, row: Tensor) -> None:
        """Put -inf, in place, where a token may not be drawn; `row` is float32 [width] or narrower."""
        ids = self.ids if len(row) == len(self.mask) else self.ids[self.ids < len(row)]
        if self.are_allowed:
            kept = row[ids]
            row.fill_(float("-inf"))
            row[ids] = kept
        else:
            row.index_fill_(0, ids, float("-inf"))

    def forbidden_mass(self, chances: Tensor) -> float:
        """The part of a distribution, float32 [width], on tokens that may not be drawn."""
        mass = float(chances[self.ids].sum())
        return max(0.0, 1.0 - mass) if self.are_allowed else min(1.0, mass)


class MaskIndex:
    """Remembers the lists of the masks that were met last, by identity: masks are shared and never written to."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, IndexedMask] = OrderedDict()

    def get(self, mask: Tensor) -> IndexedMask:
        """The lists of a mask."""
        found = self._known.get(id(mask))
        if found is not None:
            self._known.move_to_end(id(mask))
            return found
        on_cpu = mask.cpu()
        num_allowed = int(on_cpu.sum())
        are_allowed = 2 * num_allowed <= len(on_cpu)
        ids = torch.nonzero(on_cpu if are_allowed else ~on_cpu)[:, 0]
        found = self._known[id(mask)] = IndexedMask(mask, ids, are_allowed, num_allowed)  # holds the mask, so its id is not given again
        if len(self._known) > _MAX_KEPT:
            self._known.popitem(last=False)
        return found
