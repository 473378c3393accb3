"""Filling a model from a checkpoint: every tensor has a place, every place gets its tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ramet.errors import WeightError
from ramet.models.decoder import Decoder
from ramet.weights import NamedWeight

# Buffers that old checkpoints carry and that follow from the config.
_IGNORED: Final = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|rotary_emb\.(cos|sin)_cached|self_attn\.(bias|masked_bias))")
_NUM_SHOWN: Final = 5


def load_weights(model: Decoder, weights: Iterable[NamedWeight]) -> None:
    """Store every weight in its place.

    A head in the checkpoint of a model whose head is tied repeats the embedding and is left out. Raises WeightError for a tensor of another
    shape, one that comes twice, one without a place, and places that stay empty.
    """
    places = dict(model.places())
    filled: set[str] = set()
    leftovers: list[str] = []
    for weight in weights:
        place = places.get(weight.name)
        if place is None:
            is_tied_head = model.config.is_head_tied and weight.name == f"{model.config.names['head']}.weight"
            if not is_tied_head and not _IGNORED.fullmatch(weight.name):
                leftovers.append(weight.name)
            continue
        if weight.name in filled:
            raise WeightError(f"tensor {weight.name!r} stands in the checkpoint twice")
        if tuple(weight.shape) != place.shape:
            raise WeightError(f"tensor {weight.name!r} is of shape {tuple(weight.shape)}, the config asks for {place.shape}")
        place.store(weight)
        filled.add(weight.name)
    gaps = [name for name in places if name not in filled]
    if gaps:
        raise WeightError(f"the checkpoint lacks {_some(gaps)}")
    if leftovers:
        raise WeightError(f"the checkpoint holds tensors that the model has no place for: {_some(leftovers)}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NUM_SHOWN} more" if len(names) > _NUM_SHOWN else ""
    return f"{', '.join(map(repr, names[:_NUM_SHOWN]))}{more}"
