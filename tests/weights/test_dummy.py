"""Seeded random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ramet.config import ModelOptions
from ramet.weights import iterate_weights, resolve_model
from ramet.weights.dummy import STD, iterate_dummy

SHAPES = {
    "model.embed_tokens.weight": (300, 64),
    "model.layers.0.input_layernorm.weight": (64,),
    "model.layers.0.self_attn.q_norm.weight": (8,),
    "model.norm.weight": (64,),
    "model.layers.0.self_attn.q_proj.bias": (3,),
    "lm_head.weight": (300, 64),
}


def make(seed: int, names: list[str] | None = None, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    shapes = {name: SHAPES[name] for name in names or list(SHAPES)}
    return {weight.name: weight.load() for weight in iterate_dummy(shapes, dtype, seed)}


def test_shapes_and_norms() -> None:
    for name, tensor in make(0).items():
        assert tuple(tensor.shape) == SHAPES[name]
        assert torch.equal(tensor, torch.ones_like(tensor)) == name.endswith("norm.weight"), name


def test_depends_on_seed_and_name_and_nothing_else() -> None:
    first = make(0)
    assert all(torch.equal(tensor, first[name]) for name, tensor in make(0, list(reversed(SHAPES))).items())
    assert torch.equal(make(0, ["lm_head.weight"])["lm_head.weight"], first["lm_head.weight"])
    assert not torch.equal(make(1)["lm_head.weight"], first["lm_head.weight"])
    assert not torch.equal(first["model.embed_tokens.weight"], first["lm_head.weight"])
    half = make(0, ["lm_head.weight"], torch.bfloat16)["lm_head.weight"]
    assert half.dtype == torch.bfloat16 and torch.equal(half, first["lm_head.weight"].bfloat16())


def test_values_are_pinned() -> None:
    """The same on every machine and version, or seeded results of dummy models change in silence."""
    found = make(0, ["model.layers.0.self_attn.q_proj.bias"])["model.layers.0.self_attn.q_proj.bias"]
    assert found.tolist() == pytest.approx(PINNED, rel=1e-6)


PINNED = [0.02229708805680275, -0.020636290311813354, -0.009023388847708702]


def test_scale() -> None:
    (weight,) = iterate_dummy({"w": (5000, 1000)}, torch.float32, 3)  # longer than one part
    tensor = weight.load()
    assert abs(float(tensor.mean())) < STD / 500
    assert float(tensor.std()) == pytest.approx(STD, rel=5e-3)
    assert len(tensor[:, 0].unique()) > 4000  # rows differ: no ties among the logits


def test_through_the_registry(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    files = resolve_model(ModelOptions(model_path=str(tmp_path), load_format="dummy"))
    found = {weight.name: weight for weight in iterate_weights(files, torch.float32, shapes=SHAPES, seed=5)}
    assert all(torch.equal(found[name].load(), tensor) for name, tensor in make(5).items())
    assert found["lm_head.weight"].affine4() is None
    with pytest.raises(AssertionError, match="names and shapes"):
        iterate_weights(files, torch.float32)
