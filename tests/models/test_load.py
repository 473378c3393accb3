"""Loading is strict both ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ramet.errors import WeightError
from ramet.layers.placement import Storage
from ramet.models import Decoder, load_weights, read_config
from ramet.weights import NamedWeight
from ramet.weights.dummy import iterate_dummy

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}


def model(**changes: Any) -> Decoder:
    return Decoder(read_config({**CONFIG, **changes}), Storage(torch.float32, torch.device("cpu")))


def weights(of: Decoder) -> list[NamedWeight]:
    return list(iterate_dummy({name: place.shape for name, place in of.places().items()}, torch.float32, 0))


def extra(name: str, *shape: int) -> NamedWeight:
    return NamedWeight(name, shape, lambda: torch.zeros(shape))


def test_names_and_shapes() -> None:
    shapes = {name: place.shape for name, place in model().places().items()}
    assert len(shapes) == 3 + 2 * 9
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == (10, 8)
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (8, 12)
    assert shapes["model.layers.0.self_attn.k_proj.weight"] == (8, 8)
    assert "lm_head.weight" not in model(tie_word_embeddings=True).places()


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.v_proj.weight", "lm_head.weight"])
def test_gap(name: str) -> None:
    target = model()
    with pytest.raises(WeightError, match=f"lacks '{name}'"):
        load_weights(target, [weight for weight in weights(target) if weight.name != name])


def test_many_gaps_are_counted() -> None:
    with pytest.raises(WeightError, match=r"lacks ('[\w.]+', ){4}'[\w.]+' and 16 more"):
        load_weights(model(), [])


@pytest.mark.parametrize("name", ["model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "score.weight"])
def test_leftover(name: str) -> None:
    target = model()
    with pytest.raises(WeightError, match=f"no place for: '{name}'"):
        load_weights(target, [*weights(target), extra(name, 8)])


def test_shape() -> None:
    target = model()
    wrong = [extra(weight.name, 3, 3) if "up_proj" in weight.name else weight for weight in weights(target)]
    with pytest.raises(WeightError, match=r"layers.0.mlp.up_proj.weight' is of shape \(3, 3\), the config asks for \(12, 8\)"):
        load_weights(target, wrong)


def test_twice() -> None:
    target = model()
    with pytest.raises(WeightError, match="twice"):
        load_weights(target, [*weights(target), weights(target)[0]])


def test_ignored_by_name() -> None:
    target = model(tie_word_embeddings=True)
    buffers = [extra("model.layers.0.self_attn.rotary_emb.inv_freq", 2), extra("lm_head.weight", 10, 8)]
    load_weights(target, [*weights(target), *buffers])
    with pytest.raises(WeightError, match="inv_freq_scale"):
        load_weights(target, [*weights(target), extra("model.rotary_emb.inv_freq_scale", 2)])
