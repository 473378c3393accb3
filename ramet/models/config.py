"""The config of a model, read from Hugging Face's names and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ramet.errors import ConfigError, UnsupportedModel
from ramet.layers.activation import GATED_ACTIVATIONS
from ramet.layers.rotary import ROPE_KINDS, RopeSettings
from ramet.models.family import Flags
from ramet.models.registry import family_of

# Rope kinds whose `factor` says how far beyond max_position_embeddings the model may be taken.
_STRETCHING: Final = ("linear", "dynamic")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that the decoder is built from; sizes in elements, lengths in tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    is_head_tied: bool
    rope: RopeSettings
    flags: Flags
    names: Mapping[str, str]  # decoder's name to the checkpoint's

    @property
    def context_len(self) -> int:
        """The longest request in tokens."""
        return self.rope.context_len

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The sliding window of each layer."""
        return self.flags.windows or (None,) * self.num_layers


def read_config(config: Mapping[str, Any], context_length: int | None = None) -> ModelConfig:
    """Read a Hugging Face config (of transformers 4 or 5).

    Raises UnsupportedModel naming what is missing or not implemented, ConfigError for a `context_length` beyond what the model can do.
    """
    family = family_of(config)
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method")
        raise UnsupportedModel(f"quantization_config (quant_method={method!r}) is not read; use the unquantised weights or a GGUF file")
    hidden_size, num_heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    num_layers = _size(config, "num_hidden_layers")
    num_kv_heads = int(config.get("num_key_value_heads") or num_heads)
    if num_heads % num_kv_heads:
        raise UnsupportedModel(f"num_attention_heads={num_heads} is no multiple of num_key_value_heads={num_kv_heads}")
    flags = family.flags(config)
    head_dim = int(config.get("head_dim") or flags.head_dim or hidden_size // num_heads)
    activation = config.get("hidden_act", "silu")
    if activation not in GATED_ACTIVATIONS:
        raise UnsupportedModel(f"hidden_act={activation!r} is not implemented; known: {', '.join(sorted(GATED_ACTIVATIONS))}")
    return ModelConfig(
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_size(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        activation=activation,
        is_head_tied=bool(config.get("tie_word_embeddings", False)),
        rope=_rope(config, head_dim, context_length),
        flags=flags,
        names=family.names,
    )


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedModel(f"{name}={value!r} in the model's config: an integer of at least 1 is needed")
    return value


def _rope(config: Mapping[str, Any], head_dim: int, context_length: int | None) -> RopeSettings:
    """transformers 5 keeps everything in `rope_parameters`; before, `rope_theta` stood apart and `rope_scaling` was null for no scaling."""
    scaling: dict[str, Any] = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_KINDS:
        raise UnsupportedModel(f"rope_type={kind!r} is not implemented; known: {', '.join(sorted(ROPE_KINDS))}")
    missing = [name for name in ROPE_KINDS[kind].required if scaling.get(name) is None]
    if missing:
        raise UnsupportedModel(f"rope_type={kind!r} needs {', '.join(missing)}, which the model's config does not give")
    for partial in (scaling.get("partial_rotary_factor"), config.get("partial_rotary_factor")):
        if partial not in (None, 1, 1.0):
            raise UnsupportedModel(f"partial_rotary_factor={partial!r} is not implemented; only whole heads are rotated")
    if head_dim % 2:
        raise UnsupportedModel(f"head_dim={head_dim}: rotary positions need an even size")
    max_len = _size(config, "max_position_embeddings")
    limit = _longest(kind, scaling, max_len)
    context_len = max_len if context_length is None else context_length
    if context_len > limit:
        raise ConfigError("context_length", context_length, f"the model can do at most {limit} tokens (rope_type={kind!r})")
    return RopeSettings(head_dim, theta, max_len, context_len, kind, scaling)


def _longest(kind: str, scaling: Mapping[str, Any], max_len: int) -> int:
    if kind in _STRETCHING:
        return max(max_len, int(max_len * scaling["factor"]))
    if kind == "yarn":
        return max(max_len, int(scaling["original_max_position_embeddings"] * (scaling.get("factor") or 1)))
    return max_len
