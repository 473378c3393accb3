"""Top-p on a whole row: by a sort (the meaning, and quick on a GPU) or by bins (no sort; several times quicker on a CPU)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_BIN_SHIFT = 18  # bits dropped from a float32: sign, exponent and 5 bits of mantissa name the bin
_NUM_BINS = (0x3F800000 >> _BIN_SHIFT) + 1  # up to the bits of 1.0, the largest weight


def keep_from(logits: Tensor, lowest: Tensor) -> Tensor:
    """Forbid, in place, the logits [rows, width] below each row's lowest one kept [rows, 1]."""
    # Not masked_fill_: it branches on each element and takes several times as long on a CPU.
    return torch.where(logits < lowest, logits.new_tensor(-math.inf), logits, out=logits)


def nucleus_by_sort(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the fewest most likely tokens whose mass is at least `top_p`, and those that tie with the last; in place.

    `logits` is float32 [rows, width], `top_p` float32 [rows, 1]. Masses are sums of float32 weights in float64.
    """
    ranked = logits.sort(dim=-1, descending=True).values
    mass = (ranked - ranked[:, :1]).exp_().cumsum(-1, dtype=torch.float64)
    last = torch.searchsorted(mass, mass[:, -1:] * top_p.double())
    return keep_from(logits, ranked.gather(1, last))


def nucleus_by_bins(logits: Tensor, top_p: Tensor) -> Tensor:
    """The same as `nucleus_by_sort`, for logits in the memory of the CPU.

    Weights fall into bins by the leading bits of their float32, which keep their order; the bin in which the mass reaches
    `top_p` is found from the sums of the bins, and only the tokens of that bin are sorted. In numpy and row by row: the steps
    are too short for threads (waking them would take longer) and one row fits the cache of a core.
    """
    weights = np.empty(logits.shape[-1], dtype=np.float32)
    # In the types that bincount works in: otherwise it makes such copies itself, on fresh pages, for each row.
    precise = np.empty(logits.shape[-1], dtype=np.float64)
    bins = np.empty(logits.shape[-1], dtype=np.int64)
    for line, share in zip(logits, top_p[:, 0].tolist(), strict=True):
        row = line.numpy()
        peak = row.max()
        np.exp(np.subtract(row, peak, out=weights), out=weights)  # the largest weight is 1
        np.copyto(precise, weights)
        bits = weights.view(np.int32)
        np.copyto(bins, np.right_shift(bits, _BIN_SHIFT, out=bits))
        mass = np.bincount(bins, precise, _NUM_BINS)[::-1].cumsum()  # float64, most likely bin first
        wanted = mass[-1] * share
        border = int(mass.searchsorted(wanted))
        inside = np.sort(row[np.flatnonzero(bits == _NUM_BINS - 1 - border)])[::-1]
        reached = np.exp(inside - peak).cumsum(dtype=np.float64)
        if border > 0:
            reached += mass[border - 1]
        # Sums in two orders may differ in the last bit: then all of the bin is needed.
        last = min(int(reached.searchsorted(wanted)), len(inside) - 1)
        # `threshold_` keeps what is greater. Masked writes branch on each element and take several times as long.
        torch.threshold_(line, float(np.nextafter(inside[last], np.float32(-np.inf))), -math.inf)
    return logits
