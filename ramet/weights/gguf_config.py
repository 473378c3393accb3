"""The metadata of a GGUF file as the config that Hugging Face would write for the same model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ramet.errors import UnsupportedModel
from ramet.tokenizer.gguf_header import GgufHeader
from ramet.weights.gguf import ROPE_FACTORS

_CLASSES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Llama 3.1's rule for long contexts. A GGUF file holds only its result, a divisor for each frequency; the three constants are the same in
# every model that uses the rule, so the factor can be read back and the result compared.
_LLAMA3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def config_from_gguf(header: GgufHeader) -> dict[str, Any]:
    """Hugging Face names and values of a llama (mistral included), qwen2 or qwen3 model.

    Raises UnsupportedModel for another architecture, for experts, for a rotary part of a head and for a rope scaling without a translation.
    """
    reader = _Reader(header)
    arch = str(header.metadata.get("general.architecture"))
    if arch not in _CLASSES:
        raise UnsupportedModel(f"{header.path}: architecture {arch!r} is not read from GGUF; known: {', '.join(sorted(_CLASSES))}")
    if reader.get("expert_count", 0):
        raise UnsupportedModel(f"{header.path}: a mixture of experts is not read from GGUF; use the model's safetensors")
    hidden_size, num_heads = reader.count("embedding_length"), reader.count("attention.head_count")
    num_kv_heads = reader.count("attention.head_count_kv", num_heads)
    head_dim = reader.count("attention.key_length", hidden_size // num_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if reader.get(key, head_dim) != head_dim:
            raise UnsupportedModel(f"{header.path}: {arch}.{key} is {reader.get(key)}, but the heads have {head_dim}")
    rope_theta = reader.get("rope.freq_base", 10000.0)
    max_len = reader.count("context_length")
    sliding_window = reader.get("attention.sliding_window")
    model_type = "mistral" if arch == "llama" and sliding_window is not None else arch
    return {
        "architectures": [_CLASSES[model_type]],
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": reader.count("feed_forward_length"),
        "num_hidden_layers": reader.count("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": reader.must("attention.layer_norm_rms_epsilon"),
        "rope_theta": rope_theta,
        "rope_scaling": _rope_scaling(reader, head_dim, rope_theta, max_len),
        "max_position_embeddings": max_len,
        "vocab_size": reader.num_rows("token_embd.weight"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in header.tensors,
        "sliding_window": sliding_window,
        "bos_token_id": header.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def generation_config_from_gguf(header: GgufHeader) -> dict[str, Any]:
    """The ids that begin and end a text; `eos_token_id` lists every end that the file names."""
    ends = [header.metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ("eos", "eot", "eom")]
    known = list(dict.fromkeys(token_id for token_id in ends if token_id is not None))
    bos = header.metadata.get("tokenizer.ggml.bos_token_id")
    return ({} if bos is None else {"bos_token_id": bos}) | ({"eos_token_id": known} if known else {})


@dataclass(frozen=True, slots=True)
class _Reader:
    """Values under the architecture's own prefix."""

    header: GgufHeader

    def get(self, key: str, default: Any = None) -> Any:
        value = self.header.metadata.get(f"{self.header.metadata.get('general.architecture')}.{key}", default)
        return _decimal(value) if isinstance(value, float) else value

    def must(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise UnsupportedModel(f"{self.header.path} lacks {self.header.metadata.get('general.architecture')}.{key}")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.must(key) if default is None else self.get(key, default)
        if isinstance(value, list):
            raise UnsupportedModel(f"{self.header.path}: {key} differs from layer to layer, which is not supported")
        if not isinstance(value, int) or value < 1:
            raise UnsupportedModel(f"{self.header.path}: {key} is {value!r}, not a count")
        return value

    def num_rows(self, tensor: str) -> int:
        if tensor not in self.header.tensors:
            raise UnsupportedModel(f"{self.header.path} has no tensor {tensor!r}: it is not a whole model")
        return self.header.tensors[tensor].shape[0]


def _decimal(value: float) -> float:
    """The shortest decimal that a float32 of the file stands for: 1e-05 and not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope_scaling(reader: _Reader, head_dim: int, rope_theta: float, max_len: int) -> dict[str, Any] | None:
    if ROPE_FACTORS in reader.header.tensors:
        return _llama3_scaling(reader.header, head_dim, rope_theta)
    kind = reader.get("rope.scaling.type", "none")
    if kind == "none":
        return None
    factor = reader.must("rope.scaling.factor")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        original_len = reader.get("rope.scaling.original_context_length", int(max_len / factor))
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original_len}
    raise UnsupportedModel(f"{reader.header.path}: rope scaling {kind!r} is not read from GGUF; use the model's safetensors")


def _llama3_scaling(header: GgufHeader, head_dim: int, rope_theta: float) -> dict[str, Any]:
    tensor = header.tensors[ROPE_FACTORS]
    if tensor.type_id != 0 or tensor.shape != (head_dim // 2,):
        raise UnsupportedModel(f"{header.path}: {ROPE_FACTORS} is not float32 of length {head_dim // 2}")
    found = np.fromfile(header.path, "<f4", tensor.shape[0], offset=tensor.offset_bytes)
    factor = float(found.max())
    if not np.allclose(found, llama3_divisors(factor, head_dim, rope_theta), rtol=1e-3):
        raise UnsupportedModel(f"{header.path}: {ROPE_FACTORS} does not follow Llama 3's rule; use the model's safetensors")
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}


def llama3_divisors(factor: float, head_dim: int, rope_theta: float) -> Sequence[float]:
    """By what Llama 3's rule divides each rotary frequency: 1 for short waves, `factor` for long ones, a blend between."""
    low, high, original_len = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"], _LLAMA3["original_max_position_embeddings"]
    divisors = []
    for index in range(0, head_dim, 2):
        wave_len = 2 * math.pi * rope_theta ** (index / head_dim)
        blend = min(1.0, max(0.0, (original_len / wave_len - low) / (high - low)))
        divisors.append(1 / ((1 - blend) / factor + blend))
    return divisors
