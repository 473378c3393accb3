"""Qwen 2 and 2.5 (arXiv 2407.10671): biases on query, key and value. Qwen 3 (arXiv 2505.09388): norms on query and key heads instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ramet.models.family import DECODER_NAMES, Family, Flags, windows_by_layer


def _qwen2(config: Mapping[str, Any]) -> Flags:
    return Flags(has_qkv_bias=True, windows=windows_by_layer(config, int(config["num_hidden_layers"])))


def _qwen3(config: Mapping[str, Any]) -> Flags:
    has_bias = bool(config.get("attention_bias", False))
    windows = windows_by_layer(config, int(config["num_hidden_layers"]))
    return Flags(has_qkv_bias=has_bias, has_o_bias=has_bias, has_qk_norm=True, windows=windows, head_dim=128)


QWEN2: Final = Family(_qwen2, DECODER_NAMES)
QWEN3: Final = Family(_qwen3, DECODER_NAMES)
