"""What makes a family: the flags of the decoder block that its config sets, and the names of its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ramet.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Flags:
    """How a family's block differs from the plain one. `windows` has one entry a layer; None: the layer sees everything."""

    has_qkv_bias: bool = False
    has_o_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False
    windows: tuple[int | None, ...] = ()
    head_dim: int | None = None  # when the config has none; None: hidden_size / num_heads


@dataclass(frozen=True, slots=True)
class Family:
    """`flags` reads a Hugging Face config and raises UnsupportedModel; `names` maps the decoder's names to the checkpoint's."""

    flags: Callable[[Mapping[str, Any]], Flags]
    names: Mapping[str, str]


# The names that nearly every family shares. Those of a block stand below the block's own name with the layer's number.
DECODER_NAMES: Final[Mapping[str, str]] = {
    "embedding": "model.embed_tokens",
    "block": "model.layers.{layer}",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def windows_by_layer(config: Mapping[str, Any], num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer as `layer_types` says, or `max_window_layers` where that list is not given (Qwen)."""
    window = config.get("sliding_window", 4096) if config.get("use_sliding_window", False) else None
    kinds = config.get("layer_types")
    if kinds is None:
        first_window = config.get("max_window_layers", 28)
        return tuple(window if layer >= first_window else None for layer in range(num_layers))
    if len(kinds) != num_layers:
        raise UnsupportedModel(f"layer_types has {len(kinds)} entries for num_hidden_layers={num_layers}")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedModel(f"layer_types holds {kind!r}; known: full_attention, sliding_attention")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
