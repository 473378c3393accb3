"""What is read from a Hugging Face config, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.errors import ConfigError, UnsupportedModel
from ramet.models import read_config

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def architecture(name: str, **changes: Any) -> dict[str, Any]:
    return {**BASE, "architectures": [f"{name}ForCausalLM"], **changes}


def test_defaults() -> None:
    config = read_config(BASE)
    assert (config.num_kv_heads, config.head_dim, config.context_len) == (4, 8, 128)
    assert (config.rope.kind, config.rope.theta, config.norm_eps, config.is_head_tied) == ("default", 10000.0, 1e-6, False)
    assert config.windows == (None,) * 4


@pytest.mark.parametrize(
    ("changes", "kind", "theta"),
    [
        ({"rope_theta": 5e5}, "default", 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, "default", 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}, "linear", 5e5),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic", 1e4),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}}, "default", 7e5),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 7e5, "factor": 2.0, "original_max_position_embeddings": 64}}, "yarn", 7e5),
    ],
)
def test_rope_of_both_generations(changes: dict[str, Any], kind: str, theta: float) -> None:
    rope = read_config({**BASE, **changes}).rope
    assert (rope.kind, rope.theta) == (kind, theta)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (architecture("Mistral"), (4096,) * 4),
        (architecture("Mistral", sliding_window=None), (None,) * 4),
        (architecture("Mistral", sliding_window=7), (7,) * 4),
        (architecture("Qwen2", sliding_window=7, max_window_layers=2), (None,) * 4),
        (architecture("Qwen2", sliding_window=7, max_window_layers=2, use_sliding_window=True), (None, None, 7, 7)),
        (
            architecture("Qwen3", sliding_window=7, use_sliding_window=True, layer_types=["sliding_attention", "full_attention"] * 2),
            (7, None, 7, None),
        ),
    ],
)
def test_windows(config: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read_config(config).windows == windows


def test_flags_of_families() -> None:
    llama = read_config(architecture("Llama", attention_bias=True)).flags
    assert (llama.has_qkv_bias, llama.has_o_bias, llama.has_mlp_bias, llama.has_qk_norm) == (True, True, False, False)
    qwen2 = read_config(architecture("Qwen2")).flags
    assert (qwen2.has_qkv_bias, qwen2.has_o_bias, qwen2.has_qk_norm) == (True, False, False)
    qwen3 = read_config(architecture("Qwen3"))
    assert (qwen3.flags.has_qkv_bias, qwen3.flags.has_qk_norm, qwen3.head_dim) == (False, True, 128)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*LlamaForCausalLM"),
        ({"architectures": None}, "architectures=\\[\\]"),
        ({"hidden_act": "relu6"}, "hidden_act='relu6'.*silu"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope_type='longrope'.*yarn"),
        ({"rope_parameters": {"rope_type": "linear"}}, "'linear' needs factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "original_max_position_embeddings"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}}, "partial_rotary_factor=0.25"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"head_dim": 7}, "head_dim=7"),
        ({"vocab_size": None}, "vocab_size=None"),
        ({"hidden_size": "32"}, "hidden_size='32'"),
        ({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"]}, "layer_types has 1"),
        ({"architectures": ["Qwen3ForCausalLM"], "layer_types": ["linear_attention"] * 4}, "linear_attention"),
        ({"architectures": ["MistralForCausalLM"], "layer_types": ["full_attention", "sliding_attention"] * 2}, "mixes"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        read_config({**BASE, **changes})


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        (None, 128),
        ({"rope_type": "linear", "factor": 2.0}, 256),
        ({"rope_type": "dynamic", "factor": 4.0}, 512),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}, 128),
    ],
)
def test_context_length(scaling: dict[str, Any] | None, longest: int) -> None:
    config = {**BASE, "rope_scaling": scaling}
    assert read_config(config).context_len == 128
    assert read_config(config, 17).context_len == 17
    assert read_config(config, longest).context_len == longest
    with pytest.raises(ConfigError, match=f"context_length={longest + 1}.*at most {longest}"):
        read_config(config, longest + 1)
