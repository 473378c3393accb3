"""Llama 1, 2, 3 (arXiv 2302.13971, 2307.09288, 2407.21783) and models of the same block, such as SmolLM2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ramet.models.family import DECODER_NAMES, Family, Flags


def _flags(config: Mapping[str, Any]) -> Flags:
    has_bias = bool(config.get("attention_bias", False))
    return Flags(has_qkv_bias=has_bias, has_o_bias=has_bias, has_mlp_bias=bool(config.get("mlp_bias", False)))


LLAMA: Final = Family(_flags, DECODER_NAMES)
