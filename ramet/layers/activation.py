"""The gated activation of the feed-forward part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """[n, 2 * size], gate before up, to silu(gate) * up [n, size]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


# By Hugging Face's name of the function that the gate goes through.
GATED_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {"silu": swiglu, "swish": swiglu}
