"""Mistral (arXiv 2310.06825): Llama's block with a sliding window in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ramet.errors import UnsupportedModel
from ramet.models.family import DECODER_NAMES, Family, Flags


def _flags(config: Mapping[str, Any]) -> Flags:
    if "sliding_attention" in (config.get("layer_types") or ()) and "full_attention" in config["layer_types"]:
        raise UnsupportedModel("layer_types mixes full and sliding attention, which MistralForCausalLM does not have")
    return Flags(windows=(config.get("sliding_window", 4096),) * int(config["num_hidden_layers"]))


MISTRAL: Final = Family(_flags, DECODER_NAMES)
